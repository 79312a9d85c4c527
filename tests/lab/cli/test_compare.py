"""`compare` with limits: exit statuses by interval, and limits that are refused without the model."""

from pathlib import Path
from typing import Any

import pytest

from pine_engine.cli import compare as core, output
from pine_engine.cli.output import CommandResult
from tests.support.commands import Run
from tests.support.molecule_rows import write_rows

ROW: dict[str, Any] = {"question": "Who?", "documents": ["Ann.", "Ben."], "answers": ["Ann"]}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "data.jsonl", [{"id": f"q{n}", **ROW} for n in range(100)])


@pytest.mark.parametrize(
    ("limits", "status"),
    [
        ("--fail-above changed=0.05", 1),
        ("--fail-above changed=0.10", 3),
        ("--fail-above changed:pine=0.30", 0),
        ("--fail-below accuracy:pine=0.95", 1),
        ("--fail-below accuracy:pine=0.80", 3),
        ("--fail-below accuracy=0.7", 0),
        ("--fail-below accuracy:vanilla=0.95 --fail-above changed=0.1", 3),
    ],
)
def test_compare_limit_is_tested_on_the_interval(
    limits: str, status: int, data: Path, pine: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PINE has other answers in 15 of 100 examples: 9.3 to 23.3 %, computed by R's prop.test."""
    texts = [("Ann", "Ben" if n < 15 else "Ann") for n in range(100)]
    answers = [
        {"method": method, "text": text}
        for pair in texts
        for method, text in zip(("vanilla", "pine"), pair, strict=True)
    ]
    monkeypatch.setattr(core, "compare", lambda *_: CommandResult({"results": answers}, []))
    outcome = pine("compare", data, *limits.split(), "--json")
    assert outcome.status == status
    assert outcome.json["limits"]["outcome"] == {0: "passed", 1: "failed", 3: "inconclusive"}[status]


def test_compare_limits_leave_its_answers(tiny: Path, data: Path, pine: Run) -> None:
    line = f"compare {data} --model {tiny} --methods pine,vanilla --limit 2 --max-new-tokens 2 --json".split()
    plain, limited = pine(*line).json, pine(*line, "--fail-above", "changed=1", "--fail-above", "accuracy=1")
    assert limited.status == 0 and limited.json["limits"]["outcome"] == "passed"
    texts = [[answer["text"] for answer in report["results"]] for report in (plain, limited.json)]
    assert texts[0] == texts[1] and len(texts[0]) == 4


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--fail-above flip_rate=0.1", "flip_rate"),
        ("--fail-above changed=0.1 --methods pine", "changed"),
        ("--fail-above changed:nia=0.1 --methods vanilla,pine", "nia"),
        ("--fail-below accuracy=0.1 --column answers=source", "source"),
    ],
)
def test_compare_limit_is_refused_without_model(
    options: str, words: str, data: Path, pine: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "load", lambda *_, **__: pytest.fail("a model was loaded"))
    outcome = pine("compare", data, *options.split())
    assert outcome.status == 2 and words in outcome.stderr


def test_compare_accuracy_needs_accepted_answers(tmp_path: Path, pine: Run) -> None:
    data = write_rows(tmp_path / "rows.jsonl", [{**ROW, "answers": []}])
    outcome = pine("compare", data, "--fail-below", "accuracy=0.5")
    assert outcome.status == 2 and "accuracy" in outcome.stderr
