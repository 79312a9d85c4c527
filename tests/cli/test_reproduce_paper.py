"""The subcommand `reproduce-paper`: what `evaluate` measures set by set, and one report of it."""

from pathlib import Path

import pytest

from pine_engine.cli.reproduce_paper import STUDIES
from pine_engine.console import terminal
from pine_engine.data.registry import PUBLIC_SETS
from pine_engine.engine.engine import Engine
from pine_engine.evaluation.records import read_records, read_run
from tests.cli.test_evaluate import write
from tests.support.commands import Run, assert_refused
from tests.support.measured_rows import pairs

QUESTIONS = [
    {
        "id": f"q{number}",
        "task": "retrieval_qa",
        "system": "",
        "prefix": "Read.",
        "question": "Where?",
        "documents": [{"text": f"It is {place}."} for place in range(10)],
        "gold_index": number,
        "answers": [f"{number}"],
    }
    for number in range(2)
]


@pytest.fixture
def data(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    loaded = Engine.load(str(tiny))
    monkeypatch.setattr(terminal, "load", lambda *_, **__: loaded)
    write(tmp_path / "llmbar.jsonl", pairs(3))
    write(tmp_path / "lost-in-the-middle-10.jsonl", QUESTIONS)
    return tmp_path


def test_it_measures_set_by_set_goes_on_where_it_stopped_and_reports(data: Path, pine: Run) -> None:
    command = (
        "reproduce-paper",
        "llmbar",
        "lost-in-the-middle-10",
        "--data",
        data,
        "--output-dir",
        data / "runs",
    )
    options = ("--max-new-tokens", 2)
    assert pine(*command, *options, "--limit", 1).status == 0
    first = {name: read_records(data / "runs" / name) for name in ("llmbar", "lost-in-the-middle-10")}
    assert [len(records) for records in first.values()] == [10 * 6, 7 * 4]
    assert pine(*command, *options).status == 0
    for name, records in first.items():
        study, run = STUDIES[name], data / "runs" / name
        assert read_records(run)[: len(records)] == records
        alone = data / "alone" / name
        evaluated = ("--methods", study.methods, "--orders", study.orders, "--output-dir", alone, *options)
        assert pine("evaluate", data / f"{name}.jsonl", *evaluated).status == 0
        both = (read_run(run), read_run(alone))
        assert both[0].methods == both[1].methods and both[0].order_names == both[1].order_names
        assert {one.key for one in read_records(run)} == {one.key for one in read_records(alone)}
    page = (data / "runs" / "report" / "report.html").read_text(encoding="utf-8")
    assert "Permutation" in page and "PINE, input order" in page and "slot" in page


def test_a_set_that_cannot_be_measured_is_named_and_the_others_are_reported(data: Path, pine: Run) -> None:
    long = [{**QUESTIONS[0], "documents": [{"text": "very long " * 5000}] * 20}]
    write(data / "lost-in-the-middle-20.jsonl", long)
    command = (
        "reproduce-paper",
        "lost-in-the-middle-20",
        "llmbar",
        "--data",
        data,
        "--output-dir",
        data / "runs",
    )
    outcome = pine(*command, "--max-new-tokens", 2, "--limit", 1)
    assert outcome.status == 1
    assert "not in the report: lost-in-the-middle-20; see above why" in outcome.stderr
    page = (data / "runs" / "report" / "report.html").read_text(encoding="utf-8")
    assert "llmbar" in page and "lost-in-the-middle-20" not in page
    run = data / "runs" / "lost-in-the-middle-20"
    refused = pine("report", run, data / "runs" / "llmbar", "--output-dir", data / "other")
    assert refused.status == 2 and f"{run} cannot be reported: " in refused.stderr


@pytest.mark.usefixtures("no_model")
def test_sets_that_are_not_there_are_named_before_anything_is_read(tmp_path: Path, pine: Run) -> None:
    write(tmp_path / "gsm8k.jsonl", pairs(1))
    bring = f"python -m pine_engine download-data llmbar --output-dir {tmp_path}"
    also = f"python -m pine_engine download-data mt-bench --output-dir {tmp_path}"
    assert_refused(
        pine(
            "reproduce-paper",
            "gsm8k",
            "llmbar",
            "mt-bench",
            "--data",
            tmp_path,
            "--output-dir",
            tmp_path / "runs",
        ),
        f"{tmp_path} has no llmbar.jsonl, no mt-bench.jsonl; bring them first: {bring} && {also}",
    )
    assert_refused(
        pine("reproduce-paper", "squad", "--data", tmp_path, "--output-dir", tmp_path / "runs"),
        f"unknown set 'squad'; choose from: {', '.join(STUDIES)}",
    )


def test_every_set_of_the_paper_can_be_brought() -> None:
    assert set(STUDIES) <= set(PUBLIC_SETS)
