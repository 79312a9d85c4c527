"""Subcommands with a model that thinks before it answers."""

import json
from pathlib import Path

import pytest

from pine_engine import Engine
from pine_engine.cli import output
from pine_engine.lab.evaluation.run_files import read_records
from tests.support.commands import Run
from tests.support.molecule_rows import write_rows
from tests.support.scripted import thinking_model

OFF = '{"enable_thinking":false}'
REQUEST = {"question": "Who?", "documents": ["Ana.", "Dario."]}


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(*thinking_model("to Ds</think>Ana"))


@pytest.fixture(autouse=True)
def loaded(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "load", lambda *_, **__: engine)


@pytest.mark.parametrize(("length", "text", "is_finished"), [(16, "Ana", True), (4, "", False)])
def test_compare_shows_the_answer_and_counts_unfinished(
    pine: Run, tmp_path: Path, length: int, text: str, is_finished: bool
) -> None:
    file = tmp_path / "request.json"
    file.write_text(json.dumps(REQUEST), encoding="utf-8")
    command = ("compare", file, "--methods", "pine", "--max-new-tokens", length)
    (answer,) = pine(*command, "--json").json["results"]
    assert (answer["text"], answer["is_finished"]) == (text, is_finished)
    assert answer["thinking"] == "to Ds"[: len(answer["thinking"])] != ""
    table = pine(*command)
    assert "to Ds" not in table.stdout
    assert ("thinking" in table.stderr) is not is_finished


@pytest.mark.parametrize(("options", "is_noted"), [("", True), (f"--chat-template-kwargs {OFF}", False)])
def test_log_probabilities_before_the_thinking_are_noted(
    pine: Run, tmp_path: Path, options: str, is_noted: bool
) -> None:
    rows = write_rows(tmp_path / "data.jsonl", [{**REQUEST, "answers": ["Ana"]}])
    command = f"--output-dir {tmp_path / 'run'} --methods vanilla --max-new-tokens 16 {options}".split()
    outcome = pine("evaluate", rows, *command)
    assert outcome.status == 0 and ("log-probabilities" in outcome.stderr) is is_noted


@pytest.mark.parametrize(("length", "score"), [(16, 1.0), (4, 0.0)])
def test_evaluate_scores_what_follows_the_thinking(
    pine: Run, tmp_path: Path, length: int, score: float
) -> None:
    """The thinking part has the wrong name: only the text after it counts."""
    rows = write_rows(tmp_path / "data.jsonl", [{**REQUEST, "answers": ["Ana"], "rejected_answers": ["Ds"]}])
    folder = tmp_path / "run"
    options = f"--output-dir {folder} --methods vanilla --metrics generate --max-new-tokens {length}".split()
    outcome = pine("evaluate", rows, *options, "--json")
    (record,) = read_records(folder)
    assert (record.score, record.is_finished) == (score, bool(score))
    assert record.thinking
    (method,) = outcome.json["summary"]["tasks"][0]["methods"]
    (metric,) = method["measures"]
    assert metric["unfinished"]["mean"] == 1 - score
    assert ("thinking" in outcome.stderr) is not bool(score)
    assert ("before the answer" in pine("evaluate", rows, *options).stdout) is not bool(score), "a column"


@pytest.mark.parametrize(("length", "is_finished"), [(16, True), (9, False)])
def test_judge_cut_before_a_verdict_is_unfinished(
    pine: Run, tmp_path: Path, length: int, is_finished: bool
) -> None:
    """The text after the thinking part is "Ana", without a verdict; nine tokens end with "An"."""
    pair = {**REQUEST, "answers": ["A"], "task": "judge", "system": "Judge."}
    folder = tmp_path / "run"
    options = f"--output-dir {folder} --methods vanilla --metrics generate --max-new-tokens {length}".split()
    outcome = pine("evaluate", write_rows(tmp_path / "data.jsonl", [pair]), *options)
    (record,) = read_records(folder)
    assert record.text and (record.parsed, record.score) == (None, 0.5)
    assert record.is_finished is is_finished
    assert ("--max-new-tokens" in outcome.stderr) is not is_finished
