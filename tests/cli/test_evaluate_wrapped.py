"""`evaluate` with wrappers: records that survive what kills the run, any number of processes, a report."""

import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pine_engine.console import terminal
from pine_engine.engine.engine import Engine
from pine_engine.evaluation.priors import is_learnt_from
from pine_engine.evaluation.records import read_records, read_run
from tests.cli.test_evaluate import Case, start_two, write
from tests.support.commands import Run, load_nothing, run_cli_forked
from tests.support.measured_rows import pairs

PAIRS = pairs(6)

NAMES = (
    "vanilla,pine,permutation_full,permutation_cyclic:pine,pride,pride:pine,"
    "calibration_labels,calibration_first:nia,calibration_every"
)
OPTIONS = ("--methods", NAMES, "--orders", "as-is,swapped", "--max-new-tokens", "4", "--json")
NUM_RECORDS = 6 * 9 * 2


@pytest.fixture(scope="module")
def loaded(tiny: Path) -> Engine:
    return Engine.load(str(tiny))


@pytest.fixture
def case(tiny: Path, loaded: Engine, tmp_path: Path, pine: Run, monkeypatch: pytest.MonkeyPatch) -> Case:
    monkeypatch.setattr(terminal, "load", lambda *_, **__: loaded)
    return Case(write(tmp_path / "data.jsonl", PAIRS), tiny, tmp_path / "run", pine)


def test_wrapped_methods_are_records_and_rows_of_the_summary(case: Case) -> None:
    report = case.run(*OPTIONS).json
    assert (report["records"], report["errors"], report["missing"]) == (NUM_RECORDS, 0, 0)
    names = [name if ":" in name or name in ("vanilla", "pine") else f"{name}:vanilla" for name in
             NAMES.split(",")]  # fmt: skip
    assert list(read_run(case.out).methods) == names
    (task,) = report["summary"]["tasks"]
    by_name = {method["method"]: method for method in task["methods"]}
    assert set(by_name) == set(names)
    kinds = {name: [measure["kind"] for measure in one["measures"]] for name, one in by_name.items()}
    assert kinds["permutation_full:vanilla"] == kinds["vanilla"] == ["generated", "chosen", "logprob"]
    assert kinds["pride:pine"] == kinds["calibration_labels:vanilla"] == ["chosen"]
    assert kinds["calibration_every:vanilla"] == ["generated"]
    costs = {name: one["cost"] for name, one in by_name.items()}
    assert costs["permutation_full:vanilla"]["prompts"]["mean"] == 2
    assert costs["calibration_every:vanilla"]["prompts"]["mean"] == 4
    assert costs["permutation_full:vanilla"]["computed"] == 6
    learnt = sum(is_learnt_from(row["id"]) for row in PAIRS[1:]) + 1
    assert costs["pride:vanilla"]["prompts"]["mean"] == pytest.approx((6 + learnt) / 6)


@pytest.mark.parametrize("kept", [0.15, 0.5, 0.85])
def test_what_a_killed_run_left_is_kept_and_completed(case: Case, kept: float) -> None:
    case.run(*OPTIONS)
    whole, file = case.outcomes("computed"), case.out / "records.0.jsonl"
    content = file.read_bytes()
    file.write_bytes(content[: int(kept * len(content))])
    finished = len(read_records(case.out))
    assert 0 < finished < NUM_RECORDS
    assert case.run(*OPTIONS).json["missing"] == 0
    assert case.outcomes("computed") == whole
    assert file.read_bytes().count(b"\n") == NUM_RECORDS


def test_a_larger_limit_changes_no_record(case: Case) -> None:
    case.run(*OPTIONS)
    whole = case.outcomes("computed")
    grown = replace(case, out=case.out.with_name("grown"))
    for limit in (1, 4, 6):
        grown.run(*OPTIONS, "--limit", limit)
    assert grown.outcomes("computed") == whole


@pytest.mark.timeout(600)
def test_a_run_that_is_killed_says_the_same(case: Case) -> None:
    """Killed when a record is on the disk; what it can leave of others is tried above."""
    case.run(*OPTIONS)
    whole = case.outcomes("computed")
    case.out = case.out.with_name("killed")
    file = case.out / "records.0.jsonl"
    process = run_cli_forked(case.data.parent, "evaluate", *case.arguments(*OPTIONS)).process
    deadline = time.monotonic() + 150
    while time.monotonic() < deadline and process.is_alive():
        if file.exists() and file.stat().st_size:
            break
        time.sleep(0.01)
    process.kill()
    process.join()
    assert read_records(case.out)
    assert case.run(*OPTIONS).json["missing"] == 0
    assert case.outcomes("computed") == whole


@pytest.mark.timeout(600)
def test_two_processes_make_the_records_of_one(case: Case) -> None:
    """The second one divides by a prior that the first one learns."""
    case.run(*OPTIONS)
    alone = case.outcomes()
    case.out = case.out.with_name("two")
    main, other = [verb.outcome() for verb in start_two(case, *OPTIONS)]
    assert (main.status, other.status) == (0, 0), main.stderr + other.stderr
    assert main.json["records"] == NUM_RECORDS
    assert case.outcomes() == alone


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--methods", "magic:pine"), "unknown wrapper 'magic'; choose from: permutation_full, "),
        (("--methods", "pride:magic"), "unknown method 'magic'; choose from: vanilla, "),
        (("--methods", "pride:pride:pine"), "pride:pride:pine is a wrapper around a wrapper; put pride "),
        (("--methods", "pride,pride:vanilla"), "a method was named twice in pride, pride:vanilla"),
        (("--methods", "pride", "--metrics", "generate"), "pride:vanilla writes no answers; measure "),
        (("--methods", "calibration_first", "--metrics", "logprob"), "is about written answers; measure "),
        (("--methods", "pride", "--task", "retrieval_qa"), "weighs the choices of a task, and retrieval_qa"),
    ],
)  # fmt: skip
def test_what_cannot_be_measured_is_refused_before_a_model_is_loaded(
    case: Case, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], sentence: str
) -> None:
    monkeypatch.setattr(terminal, "load", load_nothing)
    outcome = case.run(*arguments, "--json")
    assert (outcome.status, outcome.stdout) == (2, "")
    assert outcome.stderr.startswith("pine_engine: ") and outcome.stderr.count("\n") == 1
    assert sentence in outcome.stderr


def test_compare_and_verify_take_methods_alone(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "load", load_nothing)
    outcome = case.invoke("verify", case.data, "--methods", "permutation_full:vanilla")
    assert outcome.status == 2
    assert outcome.stderr.startswith("pine_engine: unknown method 'permutation_full:vanilla'; choose from: ")


def test_the_report_has_a_line_for_each_wrapped_method(case: Case, tmp_path: Path) -> None:
    case.run(*OPTIONS)
    outcome: Any = case.invoke("report", case.out, "--output-dir", tmp_path / "report")
    assert (outcome.status, outcome.stderr) == (0, "")
    written = (tmp_path / "report" / "report.md").read_text(encoding="utf-8")
    for label in ("Permutation, full (Vanilla)", "PriDe (PINE)", "Calibration, every token (Vanilla)"):
        assert re.search(rf"^\| .*{re.escape(label)} \|", written, re.MULTILINE), label
    assert "permutation_cyclic:pine" in written  # in the command that does it again
