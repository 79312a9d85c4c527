"""`reproduce-paper`: one run per dataset as `evaluate` computes it, resumed, and one report."""

from pathlib import Path

import pytest

from pine_engine import Engine
from pine_engine.cli import output
from pine_engine.cli.reproduce_paper import STUDIES
from pine_engine.data.registry import PUBLIC_SETS
from pine_engine.evaluation.records import read_records, read_run
from tests.support.commands import Run
from tests.support.measured_rows import QUESTION, pairs
from tests.support.molecule_rows import write_rows

DOCUMENTS = [{"text": f"It is {place}."} for place in range(10)]
ROW = {**QUESTION.model_dump(mode="json"), "documents": DOCUMENTS, "answers": ["1"]}


@pytest.fixture
def folder(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    loaded = Engine.load(str(tiny))
    monkeypatch.setattr(output, "load", lambda *_, **__: loaded)
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / "llmbar.jsonl", pairs(2))
    write_rows(tmp_path / "lost-in-the-middle-10.jsonl", [ROW, {**ROW, "id": "q1"}])
    return tmp_path


def test_runs_are_those_of_evaluate_and_are_resumed(folder: Path, pine: Run) -> None:
    names = ("llmbar", "lost-in-the-middle-10")
    options = "--max-new-tokens 1"
    line = f"reproduce-paper {' '.join(names)} --data . --output-dir runs {options}"
    assert pine(*line.split(), "--limit", 1).status == 0
    first = {name: read_records(folder / "runs" / name) for name in names}
    assert [len(records) for records in first.values()] == [10 * 6, 7 * 4]
    assert pine(*line.split()).status == 0
    for name, records in first.items():
        (methods, orders), run, alone = STUDIES[name], folder / "runs" / name, folder / "alone" / name
        assert read_records(run)[: len(records)] == records
        named = f"--methods {methods} --orders {orders}"
        assert pine(*f"evaluate {name}.jsonl --output-dir {alone} {named} {options}".split()).status == 0
        assert {record.key for record in read_records(run)} == {record.key for record in read_records(alone)}
        assert read_run(run).methods == read_run(alone).methods
    assert (folder / "runs" / "report" / "report.html").stat().st_size > 0


def test_report_leaves_out_unfinished_dataset(folder: Path, pine: Run) -> None:
    name = "lost-in-the-middle-20"
    write_rows(folder / f"{name}.jsonl", [{**ROW, "documents": [{"text": "very long " * 5000}] * 20}])
    line = f"reproduce-paper {name} llmbar --data . --output-dir runs --max-new-tokens 1 --limit 1"
    outcome = pine(*line.split())
    assert outcome.status == 1 and f": {name}\n" in outcome.stderr
    page = (folder / "runs" / "report" / "report.md").read_text(encoding="utf-8")
    assert "llmbar" in page and name not in page


def test_missing_datasets_are_named_with_download_commands(folder: Path, pine: Run) -> None:
    outcome = pine(*["reproduce-paper", "llmbar", "gsm8k", "mt-bench", "--data", ".", "--output-dir", "runs"])
    assert outcome.status == 2 and not (folder / "runs").exists() and "llmbar" not in outcome.stderr
    for name in ("gsm8k", "mt-bench"):
        assert f"python -m pine_engine download-data {name} --output-dir ." in outcome.stderr
    assert set(STUDIES) <= set(PUBLIC_SETS)
