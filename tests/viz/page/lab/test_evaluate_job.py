"""Evaluation of the page: records, their tables, curves and files, and Stop."""

import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pine_engine.engine.engine import Engine
from pine_engine.errors import InputError
from pine_engine.lab.evaluation import measure as engine_measure
from pine_engine.lab.evaluation.record import Key, Record
from pine_engine.lab.evaluation.report.changes import changes_table
from pine_engine.lab.evaluation.report.parts import task_part
from pine_engine.methods.table import METHODS
from pine_engine.scheduling.run_state import StopFlag
from pine_engine.scheduling.scheduler import PendingPrefill
from pine_engine.scheduling.work import format_seconds
from pine_engine.scheduling.worker import RunControl
from tests.support.measured_rows import measure
from tests.support.records import run_info, swept
from tests.support.running import loaded_source, new_views, one_run, run_views
from tests.support.viz_reading import read_html, table_cells
from viz.lab.page import evaluate_job
from viz.lab.page.data_sets import read_built_in
from viz.lab.page.evaluate import read_request
from viz.lab.page.evaluate_job import MeasureRequest, measure_rows, prepare_measure, work_sentence
from viz.lab.page.evaluate_view import MeasureView, curves_of, results_html, work_of, write_files
from viz.page.common.host_settings import HostSettings
from viz.page.form import checks


def sent_request(name: str = "retrieval_qa", **changes: Any) -> MeasureRequest:
    usual = MeasureRequest(
        rows=read_built_in(name),
        limit=2,
        methods=("vanilla", "pine"),
        orders=("gold-first", "gold-last"),
        generate=True,
        logprobs=True,
        max_new_tokens=3,
    )
    return replace(usual, **changes)


@pytest.fixture(scope="module")
def views(engine: Engine) -> list[MeasureView]:
    return list(measure_rows(engine, sent_request()))


@pytest.fixture(scope="module")
def records(views: list[MeasureView]) -> tuple[Record, ...]:
    return views[-1].records


def view_of(records: Iterable[Record], planned: Iterable[Key] = ()) -> MeasureView:
    found = tuple(records)
    info = run_info(data="a <b> & c")
    return MeasureView("", info, tuple(planned) or tuple(one.key for one in found), found)


def last_results(engine: Engine, request: MeasureRequest) -> str:
    *_, last = measure_rows(engine, request)
    return results_html(last, last.run)


# Requests


def test_wrapped_method_is_measured_beside_ticked_ones(engine: Engine) -> None:
    picked = ["permutation_full:vanilla", "pride:pine"]
    read = read_request("judge", None, 1.0, ["pine"], picked, ["as-is", "swapped"], ["logprob"], 16.0)
    assert read.methods == ("pine", *picked)
    assert work_sentence(read).endswith(" 6 records")
    changed, *_ = read_html(last_results(engine, read)).all("tbody")
    rows = [[cell.text for cell in row.children if cell.tag in ("th", "td")] for row in changed.all("tr")]
    assert rows[1] == ["Permutation, full (Vanilla)", "yes", "0 of 1"]
    assert [row[:2] for row in rows] == [["PINE", "yes"], rows[1][:2], ["PriDe (PINE)", "no"]]
    with pytest.raises(InputError, match="a wrapper around a wrapper"):
        work_sentence(replace(read, methods=("pride:pride",)))


def test_curve_has_a_line_per_wrapped_method(engine: Engine) -> None:
    names = ("pine", "permutation_cyclic:vanilla", "calibration_first:nia")
    *_, last = measure_rows(engine, sent_request(methods=names, limit=1, orders=("gold-all",)))
    assert last.run is not None
    (curve,) = curves_of(last, last.run)
    # Calibration says nothing of how likely the accepted answer is.
    assert [line.label for line in curve.lines] == ["PINE", "Permutation, cyclic (Vanilla)"]


def test_orders_within_a_record_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "MAX_ORDERS", 20)
    host = HostSettings()
    with pytest.raises(InputError, match="24"):
        sent_request(methods=("permutation_full",), orders=("as-is",)).settings(host)
    for method in ("permutation_cyclic", "calibration_every"):
        assert sent_request(methods=(method,), orders=("as-is",)).settings(host)
    fitting = [method for method in METHODS.values() if not method.needs_scores]
    every = sent_request(methods=tuple(method.name for method in fitting)).settings().measured
    assert [method.base for method in every] == fitting


def test_shared_work_is_counted_once(engine: Engine) -> None:
    """Permutation takes both prompts and answers of a sweep, which vanilla shares for half the time."""
    alone = [swept("q", "vanilla", slot, k=2, score=1.0, seconds=4.0) for slot in (0, 1)]
    halves = [record.model_copy(update={"decode_s": 2.0, "seconds": 3.0}) for record in alone]
    both = {"prompts": 2, "prompt_tokens": 120, "answer_tokens": 8, "prefill_s": 8.0, "decode_s": 4.0}
    wrapped = halves[0].model_copy(update={"method": "permutation_full:vanilla", "seconds": 6.0, **both})
    taken = wrapped.model_copy(update={"order_name": "gold-at:1", "was_computed": False, "seconds": 0.0})
    work = work_of([*halves, wrapped, taken])
    assert (work.prompt_tokens, work.new_tokens, work.orders) == (120, 8, 2)
    assert (work.prefill_s, work.decode_s) == (8.0, 4.0)

    names = ("vanilla", "permutation_full:vanilla", "calibration_every")
    plan = prepare_measure(
        engine, sent_request("judge", methods=names, orders=("as-is", "swapped"), limit=1)
    ).work
    # Both orders and three prompts without content; two answers, and two that go on from four prompts each.
    assert plan.prompts == 5 and plan.new_tokens == 3 * (2 + 2 * 4)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"methods": ()}, "No method selected"),
        ({"orders": ()}, "no order was chosen"),
        ({"orders": ("sideways",)}, "unknown order 'sideways'"),
        ({"generate": False, "logprobs": False}, "metric"),
    ],
)
def test_invalid_request_raises(change: dict[str, Any], complaint: str, engine: Engine) -> None:
    with pytest.raises(InputError, match=complaint):
        work_sentence(sent_request(**change))
    with pytest.raises(InputError, match=complaint):
        next(measure_rows(engine, sent_request(**change)))


# Records


def test_records_are_those_of_the_engine(records: tuple[Record, ...], engine: Engine) -> None:
    times = {"prefill_s", "decode_s", "seconds"}
    orders = ("gold-first", "gold-last")
    made = measure(
        engine, sent_request().examples, methods=["vanilla", "pine"], order_names=orders, max_new_tokens=3
    )
    expected = [item.model_dump(exclude=times) for item in made if isinstance(item, Record)]
    assert [record.model_dump(exclude=times) for record in records] == expected
    assert len(records) == 8


def test_views_grow_record_by_record(views: list[MeasureView]) -> None:
    first, *grown = new_views(views)
    counts = [read_html(results_html(view, view.run)).with_class("pine-score")[0].text for view in grown]
    assert counts == [f"{number} of 8 records" for number in range(1, 9)]
    assert first.records == ()
    assert grown[0].sentence.startswith("1 of 8 records, about ")
    last = views[-1]
    assert grown[-1].is_complete and last.is_complete and last.sentence.startswith("Done: 8 records in ")
    assert "reading documents" in " ".join(view.sentence for view in views)


def test_finished_evaluation_has_findings_tables_and_flat_curve_of_pine(views: list[MeasureView]) -> None:
    last = views[-1]
    assert last.run is not None
    html = results_html(last, last.run)
    assert "(too few)" not in html and html.count("too few examples") == 1
    root = read_html(html)
    assert changes_table(last.records).rows[1] == ("PINE", "yes", "0 of 2")
    assert "PINE has" in root.with_class("pine-findings")[0].text
    tables = task_part("retrieval_qa", [last.run]).tables
    assert [one.text for one in root.all("h3")][2:] == [table.title for table in tables]
    (curve,) = curves_of(last, last.run)
    assert (curve.places, curve.levels) == (("1", "4"), ())
    vanilla, pine = ([one and one.mean for one in line.values] for line in curve.lines)
    assert pine[0] == pine[1] and vanilla[0] != vanilla[1]


def test_tables_and_curve_leave_out_incomplete_examples() -> None:
    def record(example: str, slot: int, text: str, logprob: float) -> Record:
        return swept(example, "pine", slot, score=1.0, logprob=logprob, text=text)

    found = [record("a", 0, "x", -1.0), record("a", 1, "y", -4.0), record("b", 0, "z", -2.0)]
    planned = [(example, "pine", f"gold-at:{slot}") for example in "ab" for slot in range(2)]
    half = view_of(found, planned)
    assert half.run is not None and half.run.tasks[0].examples == ("a",)
    (curve,) = curves_of(half, half.run)
    assert [one and one.mean for one in curve.lines[0].values] == [-1.0, -4.0]
    assert changes_table(found).rows == (("PINE", "yes", "1 of 1"),)
    (bars,) = curves_of(half, None)
    assert (bars.places, [one and one.mean for one in bars.lines[0].values]) == (("PINE",), [100.0])
    assert bars.has_bars
    first = view_of(found[:1], planned)
    assert first.run is None and not read_html(results_html(first, None)).all("table")


def test_answers_without_accepted_ones_are_compared(engine: Engine) -> None:
    rows = read_built_in("retrieval_qa")
    bare = tuple(example.model_copy(update={"answers": []}) for example in rows.examples)
    html = last_results(engine, sent_request(rows=replace(rows, examples=bare), limit=1, logprobs=False))
    (table,) = read_html(html).all("table")
    assert [row[-1].text for row in table_cells(table)][1] == "0 of 1"  # of PINE


def test_failed_records_are_counted_and_explained(engine: Engine) -> None:
    rows = read_built_in("retrieval_qa")
    long = rows.examples[0].model_copy(update={"question": "why " * 900})
    html = last_results(engine, sent_request(rows=replace(rows, examples=(long, rows.examples[1]))))
    assert "4 of 8 records have an error" in read_html(html).text
    assert "the prompt has" in read_html(html).text


# Stop


def test_stop_ends_the_model_while_decoding(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no event while several answers are decoded together, so only the beat can notice Stop."""
    monkeypatch.setattr(evaluate_job, "BEAT_S", 0.02)
    written, ended = threading.Event(), threading.Event()

    def write_without_end(*arguments: object, **_: object) -> Iterator[object]:
        yield PendingPrefill(1)
        control = arguments[-1]
        assert isinstance(control, RunControl)
        written.set()
        if control.cancelled.wait(5):
            ended.set()

    monkeypatch.setattr(engine_measure, "run_evaluation", write_without_end)
    source, stop = loaded_source(engine), StopFlag()
    found: list[MeasureView | str] = []
    for view in run_views(source, lambda engine: measure_rows(engine, sent_request()), **one_run(stop)):
        found.append(view)
        if written.is_set():
            stop.requested = True
    assert found[-1] == "Stopped." and ended.is_set()


# Files


def test_report_needs_a_complete_row(views: list[MeasureView], tmp_path: Path) -> None:
    _, *grown = new_views(views)
    records, report = write_files(grown[0], tmp_path)
    assert report is None and len(records.read_text().splitlines()) == 1
    half = grown[4].run
    assert half is not None and half.tasks[0].examples == ("qa-1",)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.2, "1 s"), (8.2, "9 s"), (12, "20 s"), (85, "90 s"), (95, "2 min"), (600, "10 min")],
)
def test_time_left_is_rounded_up(seconds: float, words: str) -> None:
    assert format_seconds(seconds) == words
