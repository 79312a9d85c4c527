from unittest.mock import Mock

import pytest
import typer

from tools import survey_models


def test_types_are_accepted_refused_or_not_built(capsys: pytest.CaptureFixture[str]) -> None:
    kinds = ["smollm3", "youtu", "mamba", "doge", "bart", "gemma4_assistant"]
    with pytest.raises(typer.Exit) as ended:
        survey_models.main(kinds)
    assert ended.value.exit_code == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert lines[:3] == ["accepted: 2", "smollm3", "youtu"]
    assert [line.split(":")[0] for line in lines[3:]] == [
        "passes alone", "mamba", "doge", "refused", "bart", "not built", "gemma4_assistant",
    ]  # fmt: skip


def test_unexpected_exception_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(survey_models, "Engine", Mock(side_effect=KeyError("x")))
    with pytest.raises(typer.Exit) as ended:
        survey_models.main(["llama"])
    assert ended.value.exit_code == 1
    assert capsys.readouterr().out.startswith("failed: 1")
