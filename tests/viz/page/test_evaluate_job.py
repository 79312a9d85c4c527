"""Evaluation of the page: records, their tables, curves and files, and Stop."""

import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pine_engine.engine.engine import Engine
from pine_engine.errors import InputError
from pine_engine.evaluation import measure as engine_measure
from pine_engine.evaluation.estimates import estimate_tasks
from pine_engine.evaluation.measure import measure
from pine_engine.evaluation.records import Record
from pine_engine.evaluation.report.tables import Curve
from pine_engine.evaluation.settings import Key
from pine_engine.methods.table import METHODS
from tests.support.records import judged, run_info, sweep, swept
from tests.support.running import new_views, one_run, run_views
from tests.support.viz_reading import read_html, table_cells
from viz.cards.measured import MeasuredRow, MeasuredTable, measured_tables
from viz.page import evaluate_job
from viz.page.common.host_settings import HostSettings
from viz.page.evaluate import read_request
from viz.page.evaluate_job import (
    MeasureRequest,
    MeasureView,
    findings_html,
    measure_rows,
    order_label,
    plan_measurement,
    slot_curves,
    tables_html,
    tabulate,
    work_of,
    work_sentence,
    write_files,
)
from viz.page.files.data_sets import read_built_in
from viz.page.jobs.cost import format_seconds
from viz.page.jobs.loading import EngineSource
from viz.page.jobs.run_log import StopFlag

SLOT = "slot of the gold document"


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


def curves_of(records: Iterable[Record], planned: Iterable[Key] = ()) -> list[Curve]:
    run = view_of(records, planned).run
    return slot_curves(run) if run else []


def last_tables(engine: Engine, request: MeasureRequest) -> str:
    *_, last = measure_rows(engine, request)
    return tables_html(last, last.run)


def cells(html: str) -> list[list[str]]:
    return [
        [" ".join(cell.text.split()) for cell in row]
        for table in read_html(html).all("table")
        for row in table_cells(table)
    ]


def means(values: Sequence[Any]) -> list[float | None]:
    return [one and one.mean for one in values]


def with_shuffles(records: Iterable[Record]) -> list[Record]:
    found = list(records)
    return found + [
        one.model_copy(update={"order_name": "shuffled:1", "permutation": (2, 1, 0)})
        for one in found
        if one.gold_slot == 2
    ]


# Requests


def test_wrapped_method_is_measured_beside_ticked_ones(engine: Engine) -> None:
    picked = ["permutation_full:vanilla", "pride:pine"]
    read = read_request("judge_pair", None, 1.0, ["pine"], picked, ["as-is", "swapped"], ["logprob"], 16.0)
    assert read.methods == ("pine", *picked)
    assert work_sentence(read).endswith(" 6 records")
    html = last_tables(engine, read)
    tables = read_html(html).all("tbody")
    labels = [row.all("th")[0].text.split("order")[0].strip() for row in tables[0].all("tr")]
    assert labels == ["PINE ≡", "Permutation, full (Vanilla) ≡", "PriDe (PINE)"]
    assert len(tables[1].all("tr")) == 2  # PriDe weighs choices alone
    assert cells(html)[1][-1] == "0 of 1"
    with pytest.raises(InputError, match="a wrapper around a wrapper"):
        work_sentence(replace(read, methods=("pride:pride",)))


def test_curve_has_a_line_per_wrapped_method(engine: Engine) -> None:
    names = ("pine", "permutation_cyclic:vanilla", "calibration_first:nia")
    *_, last = measure_rows(engine, sent_request(methods=names, limit=1, orders=("gold-all",)))
    assert last.run is not None
    (curve,) = slot_curves(last.run)
    # Calibration says nothing of how likely the accepted answer is.
    assert [line.label for line in curve.lines] == ["PINE", "Permutation, cyclic (Vanilla)"]


def test_orders_within_a_record_are_limited() -> None:
    host = HostSettings(max_orders=20)
    with pytest.raises(InputError, match="24"):
        sent_request(methods=("permutation_full",), orders=("as-is",)).settings(host)
    for method in ("permutation_cyclic", "calibration_every"):
        assert sent_request(methods=(method,), orders=("as-is",)).settings(host)
    every = sent_request(methods=tuple(METHODS)).settings().measured
    assert [method.base for method in every] == list(METHODS.values())


def test_shared_work_is_counted_once(engine: Engine) -> None:
    """Permutation takes both prompts and answers of a sweep, which vanilla shares for half the time."""
    alone = [swept("q", "vanilla", slot, k=2, score=1.0, seconds=4.0) for slot in (0, 1)]
    halves = [record.model_copy(update={"decode_s": 2.0, "seconds": 3.0}) for record in alone]
    both = {"prompts": 2, "prompt_tokens": 120, "answer_tokens": 8, "prefill_s": 8.0, "decode_s": 4.0}
    wrapped = halves[0].model_copy(update={"method": "permutation_full:vanilla", "seconds": 6.0, **both})
    taken = wrapped.model_copy(update={"order_name": "gold-at:1", "was_computed": False, "seconds": 0.0})
    work = work_of([*halves, wrapped, taken])
    assert (work.prompt_tokens, work.new_tokens, work.orders) == (120, 8, 2)
    assert (work.read_s, work.write_s) == (8.0, 4.0)

    names = ("vanilla", "permutation_full:vanilla", "calibration_every")
    plan = plan_measurement(
        engine, sent_request("judge_pair", methods=names, orders=("as-is", "swapped"), limit=1)
    )
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
    counts = [read_html(tables_html(view, view.run)).with_class("pine-score")[0].text for view in grown]
    assert counts == [f"{number} of 8 records" for number in range(1, 9)]
    assert first.records == ()
    assert grown[0].sentence.startswith("1 of 8 records, about ")
    last = views[-1]
    assert grown[-1].is_complete and last.is_complete and last.sentence.startswith("Done: 8 records in ")
    assert "layer" in " ".join(view.sentence for view in views)


def test_last_table_has_intervals_and_findings(views: list[MeasureView], records: tuple[Record, ...]) -> None:
    html = tables_html(views[-1], views[-1].run)
    assert len(read_html(html).all("h4")) == 2
    (task,) = estimate_tasks(records)
    nats, answered = (task.get("pine", metric, "mean") for metric in ("logprob", "generated"))
    assert nats is not None and nats.interval is None, "two rows are too few"
    assert cells(html)[3][2] == f"{nats.mean:.2f}"
    assert answered is not None and answered.interval is not None
    low, high = answered.interval
    assert cells(html)[1][2] == f"{100 * answered.mean:.0f}%{100 * low:.0f}% to {100 * high:.0f}%"
    found = read_html(findings_html(views[-1], views[-1].run)).with_class("pine-findings")
    assert "PINE has" in found[0].text and findings_html(views[0], None) == ""


def test_pine_changes_no_answer_and_is_flat(views: list[MeasureView]) -> None:
    last = views[-1]
    answers, logprobs = tabulate(last.records, last.planned)
    by_label = {row.label: row for row in answers.rows}
    assert (by_label["PINE"].changed, by_label["PINE"].compared) == (0, 2)
    assert logprobs.rows[1].changed is None and last.run is not None
    (curve,) = slot_curves(last.run)
    assert (curve.places, curve.x_title, curve.levels) == (("1", "4"), f"{SLOT} (1–4)", ())
    vanilla, pine = (means(line.values) for line in curve.lines)
    assert pine[0] == pine[1] and vanilla[0] != vanilla[1]


def test_means_equal_those_computed_by_hand() -> None:
    def record(example: str, slot: int, text: str, score: float, logprob: float) -> Record:
        found = swept(example, "pine", slot, k=2, score=score, logprob=logprob, text=text)
        return found.model_copy(update={"order_name": ("as-is", "reversed")[slot]})

    found = [
        record("a", 0, "x", 1.0, -1.0),
        record("a", 1, "y", 0.0, -4.0),
        record("b", 0, "z", 1.0, -2.0),
        record("b", 1, "z", 1.0, -6.0),
        record("c", 0, "z", 0.0, -5.0),
    ]
    planned = [(example, "pine", order) for example in "abc" for order in ("as-is", "reversed")]
    answers, logprobs = tabulate(found, planned)
    (row,) = answers.rows
    assert row.values == pytest.approx((2 / 3, 1 / 2)) and row.mean == pytest.approx(3 / 5)
    assert (row.changed, row.compared) == (1, 2)
    assert logprobs.rows[0].values == pytest.approx((-8 / 3, -5))
    (curve,) = curves_of(found, planned)
    assert means(curve.lines[0].values) == pytest.approx([-1.5, -5]), "c is not done in both orders"
    (share,) = curves_of([one.model_copy(update={"answer_logprob": None}) for one in found], planned)
    assert means(share.lines[0].values) == pytest.approx([100, 50])
    assert [one and one.interval for one in share.lines[0].values] == [None, None], "of a part of the data"
    assert curves_of(found[:1], planned) == []


def test_unparsed_answers_have_no_line_and_no_level() -> None:
    """Nothing of vanilla is parsed, and nothing of PINE in the last slot."""
    records = with_shuffles(sweep(3, ["vanilla", "nia", "pine"], lambda index, _, slot: -index - slot))
    unparsed = [
        one.model_copy(update={"answer_logprob": None})
        if one.method == "nia" or (one.method == "pine" and one.gold_slot != 2)
        else one.model_copy(update={"answer_logprob": None, "parsed": None})
        for one in records
    ]
    (curve,) = curves_of(unparsed)
    assert [(line.label, [value is None for value in line.values]) for line in curve.lines] == [
        ("NIA", [False] * 3),
        ("PINE", [False, False, True]),
    ]
    assert [level.label for level in curve.levels] == ["NIA, shuffled"]
    assert "a &lt;b&gt; &amp; c." in curve.note
    assert curves_of(one.model_copy(update={"answer_logprob": None, "parsed": None}) for one in records) == []
    (nats,) = curves_of(records)
    assert len(nats.lines) == 3, "log-probabilities need no parsing"


def test_unparsed_verdicts_have_no_score() -> None:
    """Half a point each is no accuracy: not in an order, nor on the whole."""
    records = [
        judged(example, method, order, "A" if (example, method, order) == ("b", "pine", "as-is") else None)
        for example in "ab"
        for method in ("vanilla", "pine")
        for order in ("as-is", "swapped")
    ]
    planned = [record.key for record in records]
    for tasks in ((), estimate_tasks(records)):
        (table,) = tabulate(records, planned, tasks)
        vanilla, pine = sorted(table.rows, key=lambda row: row.label != "Vanilla")
        assert (vanilla.values, vanilla.mean, vanilla.interval) == ((None, None), None, None)
        assert (vanilla.unparsed, vanilla.answered, vanilla.compared) == (4, 4, 0)
        assert dict(zip(table.orders, pine.values, strict=True)) == {"as-is": 0.75, "swapped": None}
        assert (pine.unparsed, pine.compared, pine.changed) == (3, 0, 0)
        html = measured_tables([table], done=8, planned=8)
        assert "4 of 4" in read_html(html).text and "50%" not in html


def test_answers_without_accepted_ones_are_compared(engine: Engine) -> None:
    rows = read_built_in("retrieval_qa")
    bare = tuple(example.model_copy(update={"answers": []}) for example in rows.examples)
    table = cells(last_tables(engine, sent_request(rows=replace(rows, examples=bare), limit=1)))
    assert table[1][-1] == "0 of 1" and table[0][0] == "–"


def test_failed_records_are_counted_and_explained(engine: Engine) -> None:
    rows = read_built_in("retrieval_qa")
    long = rows.examples[0].model_copy(update={"question": "why " * 900})
    html = last_tables(engine, sent_request(rows=replace(rows, examples=(long, rows.examples[1]))))
    assert "4 records failed: the prompt has" in read_html(html).text


# Stop


def test_stop_ends_the_model_while_decoding(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no event while several answers are decoded together, so only the beat can notice Stop."""
    monkeypatch.setattr(evaluate_job, "BEAT_S", 0.02)
    written, ended = threading.Event(), threading.Event()

    def write_without_end(*arguments: object) -> None:
        cancelled = arguments[-1]
        assert isinstance(cancelled, threading.Event)
        written.set()
        if cancelled.wait(5):
            ended.set()

    monkeypatch.setattr(engine_measure, "run_evaluation", write_without_end)
    source, stop = EngineSource(lambda: engine, "tiny"), StopFlag()
    source.start()
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


# Drawing


def table(orders: int = 2, **changes: Any) -> MeasuredTable:
    values = tuple(index / 10 for index in range(orders))
    row = MeasuredRow("PINE", True, values, 0.25, (0.1, 0.4), changed=1, compared=6)
    return MeasuredTable(
        "Accepted answers", True, tuple(f"o{i}" for i in range(orders)), (replace(row, **changes),)
    )


def test_many_orders_show_the_lowest_and_highest() -> None:
    assert cells(measured_tables([table(7)], done=1, planned=1))[0][:2] == ["0% (o0)", "60% (o6)"]
    assert cells(measured_tables([table(6)], done=1, planned=1))[0][5] == "50%"
    empty = table(7, values=(None,) * 7)
    assert cells(measured_tables([empty], done=1, planned=1))[0][:2] == ["–", "–"]


def test_table_and_curve_count_slots_from_one() -> None:
    records = list(sweep(3, ["vanilla", "pine"], lambda index, _, slot: -index - slot))
    tables = tabulate(records, [one.key for one in records])
    assert {table.orders for table in tables} == {("slot 1", "slot 2", "slot 3")}
    (curve,) = curves_of(records)
    assert curve.places == ("1", "2", "3")
    assert [order_label(name) for name in ("as-is", "order:1-0")] == ["as-is", "order:1-0"]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.2, "1 s"), (8.2, "9 s"), (12, "20 s"), (85, "90 s"), (95, "2 min"), (600, "10 min")],
)
def test_time_left_is_rounded_up(seconds: float, words: str) -> None:
    assert format_seconds(seconds) == words
