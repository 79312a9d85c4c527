"""Measuring on the page: rows in, tables and a curve out, record by record, and files to take away."""

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gradio as gr
import pytest
from transformers import LlamaForCausalLM

from pine_engine.engine.engine import Engine
from pine_engine.errors import InputError
from pine_engine.evaluation.estimates import estimate_tasks
from pine_engine.evaluation.measure import measure
from pine_engine.evaluation.records import Record
from pine_engine.methods.table import METHODS, get_methods
from tests.support.records import judged, sweep, swept
from tests.support.running import one_run, run_views
from tests.support.tokenizers import letter_tokenizer
from tests.support.viz_reading import HOSTILE, assert_harmless, read_html, table_cells
from tests.support.widgets import built
from viz.cards.measured import MeasuredRow, MeasuredTable, key_findings, measured_tables
from viz.figures.bias_curve import plot_bias_curve
from viz.page.common.bounds import MAX_ROWS
from viz.page.common.disk import Disk
from viz.page.common.host_settings import DEFAULTS, HostSettings
from viz.page.files.data_sets import (
    OWN,
    DataSet,
    built_in_choices,
    orders_for,
    orders_meaning,
    read_brought,
    read_built_in,
    read_set,
    usual_orders,
    wrapped_for,
)
from viz.page.files.reading_files import FileReader, without_progress
from viz.page.form.method_boxes import OFFERED, WRAPPED, wrapped_choices
from viz.page.jobs.cost import format_seconds
from viz.page.jobs.loading import EngineSource
from viz.page.jobs.run_log import RunLog, StopFlag
from viz.page.measure import measuring
from viz.page.measure.measure_panel import build_measure, chosen_rows, read_request
from viz.page.measure.measured_files import remove_measured, write_measured
from viz.page.measure.measuring import (
    MeasureRequest,
    MeasureView,
    measure_rows,
    plan_measurement,
    work_of,
    work_sentence,
)
from viz.page.measure.tabulating import slot_curves, tabulate

SETS = [name for _, name in built_in_choices()]


@pytest.fixture(scope="module")
def engine(tiny_llama: Callable[..., LlamaForCausalLM]) -> Engine:
    return Engine(tiny_llama(max_context_length=2048), letter_tokenizer(), name="tiny")


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
    *_, last = (view.measured for view in views if view.measured)
    return last.records


def cells(html: str) -> list[list[str]]:
    return [
        [" ".join(cell.text.split()) for cell in row]
        for table in read_html(html).all("table")
        for row in table_cells(table)
    ]


# The sets that come with the page


@pytest.mark.parametrize("name", SETS)
def test_a_set_of_ours_has_rows_that_its_task_can_score(name: str) -> None:
    rows = read_built_in(name)
    assert rows.task.name == name and len(rows.examples) >= 4
    for example in rows.examples:
        assert example.source and example.license == "Apache-2.0"
        assert example.answers or rows.task.drawn_as  # many molecules have the same properties
        others = {answer for one in rows.examples for answer in one.answers} - {*example.answers}
        assert {rows.task.score(other, example.answers) for other in others} <= {0.0, 0.5}


def test_there_are_six_rows_of_each_of_the_tasks_with_a_right_answer() -> None:
    assert {"retrieval_qa", "judge_pair", "math_reasoning"} <= set(SETS)
    for name in ("retrieval_qa", "judge_pair", "math_reasoning"):
        assert len(read_built_in(name).examples) >= 6
    assert dict(built_in_choices())["Judge two answers (6 rows)"] == "judge_pair"


def test_the_gold_document_alone_holds_the_answer() -> None:
    rows = read_built_in("retrieval_qa")
    golds = [example.gold_index for example in rows.examples]
    assert len(set(golds)) > 2  # so that no slot is favoured by the rows themselves
    for example in rows.examples:
        scores = [rows.task.score(document.text, example.answers) for document in example.documents]
        assert [index for index, score in enumerate(scores) if score] == [example.gold_index]


def test_the_better_answers_stand_equally_often_first() -> None:
    answers = [example.answers for example in read_built_in("judge_pair").examples]
    assert sorted(answers) == [["A"]] * 3 + [["B"]] * 3


def test_orders_are_those_that_fit_the_rows() -> None:
    assert {"gold-all", "gold-first", "all"} <= set(orders_for(read_built_in("retrieval_qa")))
    assert "swapped" not in orders_for(read_built_in("retrieval_qa"))
    math = orders_for(read_built_in("math_reasoning"))
    assert "reversed" in math and not [name for name in math if name.startswith("gold")]
    judge = orders_for(read_built_in("judge_pair"))
    assert {"swapped", "segments-swapped", "labels-swapped"} <= set(judge)
    assert [usual_orders(orders) for orders in (judge, math, ["gold-all"])] == [
        ["as-is", "swapped"],
        ["as-is", "reversed"],
        ["gold-all"],
    ]
    assert orders_meaning(["reversed", "order:1-0"]) == "reversed: the last document first"


# The visitor's own rows

ROW = {"id": "a", "task": "retrieval_qa", "question": "Why?", "documents": [{"text": "one"}, {"text": "two"}]}


def rows_file(folder: Path, *rows: object) -> Path:
    file = folder / "mine.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def brought(file: Path) -> DataSet:
    return without_progress(read_brought(FileReader(RunLog()), file, what="read rows", say=str))


def test_rows_of_a_visitor_are_read_up_to_a_limit(tmp_path: Path) -> None:
    many = [ROW | {"id": str(number)} for number in range(MAX_ROWS + 1)]
    rows = read_set(rows_file(tmp_path, *many))
    assert (rows.name, len(rows.examples), rows.task.name) == ("mine.jsonl", MAX_ROWS, "retrieval_qa")
    assert len(rows.sha256) == 64
    assert chosen_rows(OWN, rows) is rows


def test_what_a_visitor_brings_is_read_as_our_own_rows_are(tmp_path: Path) -> None:
    file = rows_file(tmp_path, ROW, ROW | {"id": "b"})
    assert brought(file) == read_set(file)


def test_a_wrong_row_is_named_by_file_and_line_and_not_by_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError) as raised:
        brought(rows_file(tmp_path, ROW, ROW | {"id": "b", "gold_index": 2}))
    assert str(raised.value).startswith("the file mine.jsonl, line 2: gold_index is 2")
    with pytest.raises(
        InputError, match="the file mine.jsonl has rows of retrieval_qa and kv_retrieval; give a file"
    ):
        read_set(rows_file(tmp_path, ROW, ROW | {"id": "b", "task": "kv_retrieval"}))


def test_measurement_without_rows_shows_a_message() -> None:
    with pytest.raises(InputError, match="You have not brought any rows yet"):
        chosen_rows(OWN, None)


# Requests


def test_request_holds_the_values_of_the_widgets() -> None:
    read = read_request("judge_pair", None, 4.0, ["pine", "vanilla"], [], ["as-is"], ["logprob"], 16.0)
    assert read == sent_request(
        "judge_pair",
        limit=4,
        orders=("as-is",),
        generate=False,
        logprobs=True,
        max_new_tokens=16,
    )


def test_wrapped_methods_are_measured_beside_those_that_are_ticked(engine: Engine) -> None:
    picked = ["permutation_full:vanilla", "pride:pine"]
    read = read_request("judge_pair", None, 1.0, ["pine"], picked, ["as-is", "swapped"], ["logprob"], 16.0)
    assert read.methods == ("pine", *picked)
    assert work_sentence(read) == "1 row × 3 methods × 2 orders: 6 records."
    *_, last = measure_rows(engine, read)
    root = read_html(last.tables or "")
    labels = [row.all("th")[0].text.split("order")[0].strip() for row in root.all("tbody")[0].all("tr")]
    assert labels == ["PINE ≡", "Permutation, full (Vanilla) ≡", "PriDe (PINE)"]
    assert [heading.text.split(" ")[0] for heading in root.all("h4")] == ["Accepted", "How"]
    assert len(root.all("tbody")[1].all("tr")) == 2  # PriDe weighs choices alone
    changes = [row[-1] for row in cells(last.tables or "")]
    assert changes[1] == "0 of 1"
    with pytest.raises(InputError, match="a wrapper around a wrapper"):
        work_sentence(replace(read, methods=("pride:pride",)))


def test_a_curve_has_a_line_for_a_wrapped_method(engine: Engine) -> None:
    names = ("pine", "permutation_cyclic:vanilla", "calibration_first:nia")
    *_, last = measure_rows(engine, sent_request(methods=names, limit=1, orders=("gold-all",)))
    (curve,) = last.curves or ()
    # Calibration says nothing of how likely the accepted answer is.
    assert [line.label for line in curve.lines] == ["PINE", "Permutation, cyclic (Vanilla)"]


def test_wrappers_are_offered_where_they_can_say_something() -> None:
    def offered(name: str, most: int = 120) -> set[str]:
        return set(wrapped_for(read_built_in(name), WRAPPED, most))

    assert {wrapped.base.name for wrapped in WRAPPED} == set(OFFERED)
    assert offered("judge_pair") == {wrapped.name for wrapped in WRAPPED}
    others = {one.name for one in WRAPPED if one.generates}
    assert offered("retrieval_qa") == offered("math_reasoning") == others
    assert others - offered("qm9") == {f"permutation_full:{base}" for base in OFFERED}
    assert offered("retrieval_qa", 23) == others - {f"permutation_full:{base}" for base in OFFERED}
    assert [name for _, name in wrapped_choices(["pride:pine", "pride:nia"])] == ["pride:nia", "pride:pine"]


def test_more_orders_than_the_host_allows_are_refused_within_a_record() -> None:
    host = HostSettings(max_orders=20)
    with pytest.raises(InputError, match="24 orders were asked for, and this page tries 20 at most"):
        sent_request(methods=("permutation_full",), orders=("as-is",)).settings(host)
    assert sent_request(methods=("permutation_cyclic",), orders=("as-is",)).settings(host)
    assert sent_request(methods=("calibration_every",), orders=("as-is",)).settings(host)


def test_work_that_was_lent_is_counted_once() -> None:
    """Permutation takes both prompts and answers of a sweep, which vanilla lends it for half the time."""
    alone = [swept("q", "vanilla", slot, k=2, score=1.0, seconds=4.0) for slot in (0, 1)]
    halves = [record.model_copy(update={"decode_s": 2.0, "seconds": 3.0}) for record in alone]
    both = {"prompts": 2, "prompt_tokens": 120, "answer_tokens": 8, "prefill_s": 8.0, "decode_s": 4.0}
    wrapped = halves[0].model_copy(update={"method": "permutation_full:vanilla", "seconds": 6.0, **both})
    taken = wrapped.model_copy(update={"order_name": "gold-at:1", "was_computed": False, "seconds": 0.0})
    work = work_of([*halves, wrapped, taken])
    assert (work.prompt_tokens, work.new_tokens, work.orders) == (120, 8, 2)
    assert (work.read_s, work.write_s) == (8.0, 4.0)


def test_orders_that_are_lent_are_planned_once(engine: Engine) -> None:
    names = ("vanilla", "permutation_full:vanilla", "calibration_every")
    ask = sent_request("judge_pair", methods=names, orders=("as-is", "swapped"), limit=1)
    plan = plan_measurement(engine, ask.examples, ask.settings())
    # Both orders and three prompts without content; two answers, and two that go on from four prompts each.
    assert plan.prompts == 5 and plan.new_tokens == 3 * (2 + 2 * 4)


def test_the_widgets_hand_over_what_is_read() -> None:
    def build() -> list[Any]:
        with gr.Blocks():
            return [widget.value for widget in build_measure(DEFAULTS).inputs]

    read = read_request(*built(build))
    assert read.rows.name == "retrieval_qa.jsonl" and read.generate and read.logprobs
    assert read.methods == tuple(row.name for row in get_methods())


def test_the_work_is_counted_before_it_begins() -> None:
    assert work_sentence(sent_request()) == "2 rows × 2 methods × 2 orders: 8 records."
    assert work_sentence(sent_request(limit=1, methods=("pine",), orders=("as-is",))) == (
        "1 row × 1 method × 1 order: 1 record."
    )
    assert work_sentence(sent_request(orders=("gold-all",))) == "2 rows × 2 methods × 4 orders: 16 records."


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"methods": ()}, "No method is chosen"),
        ({"orders": ()}, "no order was chosen"),
        ({"orders": ("sideways",)}, "unknown order 'sideways'"),
        ({"generate": False, "logprobs": False}, "nothing is to be measured"),
    ],
)
def test_invalid_measurement_shows_why(change: dict[str, Any], complaint: str, engine: Engine) -> None:
    with pytest.raises(InputError, match=complaint):
        work_sentence(sent_request(**change))
    with pytest.raises(InputError, match=complaint):
        next(measure_rows(engine, sent_request(**change)))


# Measuring


def test_the_records_are_those_that_measuring_makes(records: tuple[Record, ...], engine: Engine) -> None:
    times = {"prefill_s", "decode_s", "seconds"}
    orders = ("gold-first", "gold-last")
    made = measure(
        engine, sent_request().examples, methods=["vanilla", "pine"], order_names=orders, max_new_tokens=3
    )
    expected = [item.model_dump(exclude=times) for item in made if isinstance(item, Record)]
    assert [record.model_dump(exclude=times) for record in records] == expected
    assert len(records) == 8


def test_the_table_grows_record_by_record(views: list[MeasureView]) -> None:
    grown = [view for view in views if view.measured]
    counts = [read_html(view.tables or "").with_class("pine-score")[0].text for view in grown]
    assert counts == [f"{number} of 8 records" for number in range(1, 9)]
    assert "pine-empty" in (views[0].tables or "")
    assert grown[0].sentence.startswith("1 of 8 records, about ")
    assert views[-1].sentence.startswith("Done: 8 records in ")
    assert "layer" in " ".join(view.sentence for view in views)


def test_the_last_table_has_the_summary_and_says_it_in_short(
    views: list[MeasureView], records: tuple[Record, ...]
) -> None:
    root = read_html(views[-1].tables or "")
    titles = [heading.text for heading in root.all("h4")]
    assert titles == [
        "Accepted answers",
        "How likely the accepted answer is (log-probability, nats)",
    ]
    (task,) = estimate_tasks(records)
    pine = task.get("pine", "logprob", "mean")
    assert pine is not None
    nats = cells(views[-1].tables or "")[3][2]
    assert nats == f"{pine.mean:.2f}" and pine.interval is None, "two rows are too few"
    answered = task.get("pine", "generated", "mean")
    assert answered is not None and answered.interval is not None
    low, high = answered.interval
    shares = cells(views[-1].tables or "")[1][2]
    assert shares == f"{100 * answered.mean:.0f}%{100 * low:.0f}% to {100 * high:.0f}%"
    assert "Log-probabilities have one from 10 rows on." in root.text
    assert "PINE has" in read_html(views[-1].findings or "").with_class("pine-findings")[0].text


SLOT = "slot of the answer"


def test_pine_changes_no_answer_and_its_line_is_flat(records: tuple[Record, ...]) -> None:
    request = sent_request(methods=("vanilla", "pine"), orders=("gold-first", "gold-last"))
    planned = request.settings().keys(request.examples)
    answers, logprobs = tabulate(records, planned)
    by_label = {row.label: row for row in answers.rows}
    assert (by_label["PINE"].changed, by_label["PINE"].compared) == (0, 2)
    assert logprobs.rows[1].changed is None
    (curve,) = slot_curves(records, planned, "tiny")
    assert (curve.places, curve.x_title, curve.levels) == (("1", "4"), f"{SLOT}, of 4", ())
    vanilla, pine = curve.lines
    assert pine.values[0] == pine.values[1] != vanilla.values[0] != vanilla.values[1]


def test_means_by_hand() -> None:
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
    planned = dict.fromkeys((example, "pine", order) for example in "abc" for order in ("as-is", "reversed"))
    answers, logprobs = tabulate(found, planned)
    (row,) = answers.rows
    assert row.values == pytest.approx((2 / 3, 1 / 2)) and row.mean == pytest.approx(3 / 5)
    assert (row.changed, row.compared) == (1, 2)
    assert logprobs.rows[0].values == pytest.approx((-8 / 3, -5))
    (curve,) = slot_curves(found, planned, "")
    assert [one and one.mean for one in curve.lines[0].values] == pytest.approx([-1.5, -5]), (
        "c is not done in both orders"
    )
    without = [one.model_copy(update={"answer_logprob": None}) for one in found]
    (share,) = slot_curves(without, planned, "")
    assert [one and one.mean for one in share.lines[0].values] == pytest.approx([100, 50])
    assert slot_curves(found[:1], planned, "") == []


def test_the_curve_of_the_page_is_that_of_the_report() -> None:
    """Two sizes, one row of each not done yet, and a shuffle of the others."""
    records = [*sweep(5, ["vanilla", "pine"], lambda i, method, slot: -i - slot * (method == "vanilla"), k=3)]
    larger = sweep(4, ["vanilla", "pine"], lambda i, method, slot: -2 * i - slot * (method == "vanilla"), k=4)
    records += [one.model_copy(update={"example": f"{one.example} of 4"}) for one in larger]
    planned = {one.key for one in records}
    shuffled = [
        one.model_copy(update={"order_name": "shuffled:1", "answer_logprob": one.answer_logprob - 0.25})
        for one in records
        if one.gold_slot == 2 and one.answer_logprob is not None and one.method == "vanilla"
    ]
    flat = [one.model_copy(update={"order_name": "shuffled:1"}) for one in records
            if one.gold_slot == 2 and one.method == "pine"]  # fmt: skip
    planned |= {one.key for one in (*shuffled, *flat)}
    missing = {("q-4", "pine", "gold-at:1"), ("q-1 of 4", "vanilla", "shuffled:1")}
    there = [one for one in (*records, *shuffled, *flat) if one.key not in missing]
    (task,) = estimate_tasks([one for one in there if one.example not in ("q-4", "q-1 of 4")])
    curves = slot_curves(there, planned, "")
    assert [curve.x_title for curve in curves] == [f"{SLOT}, of 3", f"{SLOT}, of 4"]
    for curve, size in zip(curves, (3, 4), strict=True):
        for line, method in zip(curve.lines, task.methods, strict=True):
            found = [task.get(method, "logprob", "slot", str(size), str(slot)) for slot in range(size)]
            assert [one and one.mean for one in line.values] == pytest.approx(
                [one and one.mean for one in found]
            )
        (level,) = curve.levels
        expected = task.get("vanilla", "logprob", "shuffled", str(size))
        assert level.label == "Vanilla, shuffled" and level.values[0] and expected
        assert level.values[0].mean == pytest.approx(expected.mean)


def test_what_cannot_be_read_has_no_line_and_no_level() -> None:
    """Of vanilla nothing, of PINE nothing in the last slot: no value is drawn for it."""
    records = [*sweep(3, ["vanilla", "nia", "pine"], lambda index, _, slot: -index - slot)]
    records += [one.model_copy(update={"order_name": "shuffled:1", "permutation": (2, 1, 0)})
                for one in records if one.gold_slot == 2]  # fmt: skip
    unparsed = [
        one.model_copy(update={"answer_logprob": None})
        if one.method == "nia" or (one.method == "pine" and one.gold_slot != 2)
        else one.model_copy(update={"answer_logprob": None, "parsed": None})
        for one in records
    ]
    planned = {one.key for one in records}
    (curve,) = slot_curves(unparsed, planned, "")
    assert [(line.label, [value is None for value in line.values]) for line in curve.lines] == [
        ("NIA", [False] * 3),
        ("PINE", [False, False, True]),
    ]
    assert [level.label for level in curve.levels] == ["NIA, shuffled"]
    nothing = [one.model_copy(update={"answer_logprob": None, "parsed": None}) for one in records]
    assert slot_curves(nothing, planned, "") == []
    (nats,) = slot_curves(records, planned, "")
    assert len(nats.lines) == 3, "log-probabilities need no reading"


def test_verdicts_that_cannot_be_read_have_no_score() -> None:
    """Half a point each is no accuracy: not in an order, nor on the whole."""
    records = [
        judged(example, method, order, "A" if (example, method, order) == ("b", "pine", "as-is") else None)
        for example in "ab"
        for method in ("vanilla", "pine")
        for order in ("as-is", "swapped")
    ]
    planned = {record.key for record in records}
    for tasks in ((), estimate_tasks(records)):
        (table,) = tabulate(records, planned, tasks)
        vanilla, pine = sorted(table.rows, key=lambda row: row.label != "Vanilla")
        assert (vanilla.values, vanilla.mean, vanilla.interval) == ((None, None), None, None)
        assert (vanilla.unparsed, vanilla.answered, vanilla.compared) == (4, 4, 0)
        assert dict(zip(table.orders, pine.values, strict=True)) == {"as-is": 0.75, "swapped": None}
        assert (pine.unparsed, pine.compared, pine.changed) == (3, 0, 0)
        html = measured_tables([table], done=8, planned=8)
        assert "unparsed" in read_html(html).text and "4 of 4" in read_html(html).text
        assert "50%" not in html


def test_answers_that_nothing_says_are_right_are_still_compared(engine: Engine) -> None:
    rows = read_built_in("retrieval_qa")
    bare = tuple(example.model_copy(update={"answers": []}) for example in rows.examples)
    *_, last = measure_rows(engine, sent_request(rows=replace(rows, examples=bare), limit=1))
    table = cells(last.tables or "")
    assert [row[-1] for row in table] == ["1 of 1", "0 of 1"] or table[1][-1] == "0 of 1"
    assert table[0][0] == "–"


def test_rows_that_cannot_be_read_are_counted_and_explained(engine: Engine) -> None:
    rows = read_built_in("retrieval_qa")
    long = rows.examples[0].model_copy(update={"question": "why " * 900})
    *_, last = measure_rows(engine, sent_request(rows=replace(rows, examples=(long, rows.examples[1]))))
    assert "4 records could not be measured: the prompt has" in read_html(last.tables or "").text


# Stop


def test_stop_ends_the_model_while_answers_are_written(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch emits no event while it generates, so only the heartbeat can notice Stop."""
    monkeypatch.setattr(measuring, "BEAT_S", 0.02)
    written, ended = threading.Event(), threading.Event()

    def write_without_end(*arguments: object) -> None:
        *_, cancelled = arguments
        assert isinstance(cancelled, threading.Event)
        written.set()
        if cancelled.wait(5):
            ended.set()

    monkeypatch.setattr(measuring, "run_evaluation", write_without_end)
    source, stop = EngineSource(lambda: engine, "tiny"), StopFlag()
    source.start()
    found: list[MeasureView | str] = []
    for view in run_views(source, lambda engine: measure_rows(engine, sent_request()), **one_run(stop)):
        found.append(view)
        if written.is_set():
            stop.requested = True
    assert found[-1] == "Stopped." and ended.is_set()
    assert not [thread for thread in threading.enumerate() if thread.name == "measure-beat"]


def test_closing_leaves_no_thread_behind(engine: Engine) -> None:
    views = measure_rows(engine, sent_request(limit=6))
    next(views)
    next(views)
    views.close()
    names = {thread.name for thread in threading.enumerate()}
    assert "measure-beat" not in names


# Files


def test_the_files_have_the_records_and_the_report(
    views: list[MeasureView], records: tuple[Record, ...], tmp_path: Path
) -> None:
    disk = Disk(tmp_path, 1e9)
    *_, measured = (view.measured for view in views if view.measured)
    files = write_measured(measured, disk.new_folder())
    lines = files.records.read_text(encoding="utf-8").splitlines()
    assert [Record.model_validate_json(line) for line in lines] == list(records)
    report = files.report.read_text(encoding="utf-8")
    assert "retrieval_qa.jsonl" in report and measured.info.data_sha256 in report
    other = write_measured(measured, disk.new_folder())
    assert other.folder != files.folder
    remove_measured(files)
    assert not files.folder.exists() and other.records.exists()


def test_without_a_whole_row_there_are_records_and_no_report(
    views: list[MeasureView], tmp_path: Path
) -> None:
    first = next(view.measured for view in views if view.measured)
    files = write_measured(first, tmp_path)
    assert not files.has_report and not files.report.exists()
    assert len(files.records.read_text().splitlines()) == 1
    half = next(view.measured for view in views if view.measured and len(view.measured.records) == 5)
    assert half.run is not None and half.run.tasks[0].examples == ("qa-1",)


# Drawing


def table(orders: int = 2, **changes: Any) -> MeasuredTable:
    values = tuple(index / 10 for index in range(orders))
    row = MeasuredRow("PINE", True, values, 0.25, (0.1, 0.4), changed=1, compared=6)
    return MeasuredTable(
        "Accepted answers", True, tuple(f"o{i}" for i in range(orders)), (replace(row, **changes),)
    )


def test_a_table_shows_shares_with_their_interval() -> None:
    html = measured_tables([table()], done=3, planned=12, note="Two failed.")
    assert cells(html) == [["0%", "10%", "25%10% to 40%", "1 of 6"]]
    heads = [head.text for head in read_html(html).all("thead")[0].all("th")]
    assert heads == ["method", "o0", "o1", "mean", "answers changed"]
    assert "Two failed." in html


def test_many_orders_show_their_range() -> None:
    html = measured_tables([table(7)], done=1, planned=1)
    assert cells(html)[0][:2] == ["0% (o0)", "60% (o6)"]
    assert cells(measured_tables([table(6)], done=1, planned=1))[0][5] == "50%"
    empty = table(7, values=(None,) * 7)
    assert cells(measured_tables([empty], done=1, planned=1))[0][:2] == ["–", "–"]


def test_nats_have_no_percent_and_no_answers() -> None:
    nats = replace(table(1, values=(-3.456,), mean=-3.456, interval=None, changed=None), is_share=False)
    html = measured_tables([nats], done=1, planned=1)
    assert cells(html) == [["-3.46", "-3.46"]]


def test_the_curve_has_a_point_for_every_slot_and_says_whose_it_is() -> None:
    records = [*sweep(3, ["nia", "pine"], lambda index, _, slot: -index - slot)]
    records += [one.model_copy(update={"order_name": "shuffled:1", "permutation": (2, 1, 0)})
                for one in records if one.gold_slot == 2]  # fmt: skip
    curves = slot_curves(records, {one.key for one in records}, "a <b> & c")
    figure = plot_bias_curve(curves)
    nia, pine, *levels = figure.data
    names = ["NIA", "PINE", "NIA, shuffled", "PINE, shuffled"]
    assert [line.name for line in figure.data] == names
    assert list(nia.x) == list(pine.x) == ["1", "2", "3"] and nia.y.tolist() == [
        one and one.mean for one in curves[0].lines[0].values
    ]
    means = [one and one.mean for level in curves[0].levels for one in level.values]
    assert [level.y.tolist() for level in levels] == [[mean] * 3 for mean in means]
    assert "a thin line: shuffled" in figure.layout.meta["caption"]
    assert "a &lt;b&gt; &amp; c." in figure.layout.meta["caption"]


def test_no_finding_is_no_heading() -> None:
    assert key_findings([]) == "" and "Key findings" in key_findings(["PINE wins."])


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_are_shown_as_text(text: str) -> None:
    shown = replace(table(), title=text, orders=(text, "b"), rows=(replace(table().rows[0], label=text),))
    assert_harmless(measured_tables([shown], done=1, planned=1, note=text))
    assert_harmless(key_findings([text]))


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.2, "1 s"), (8.2, "9 s"), (12, "20 s"), (85, "90 s"), (95, "2 min"), (600, "10 min")],
)
def test_time_left_is_rounded_up(seconds: float, words: str) -> None:
    assert format_seconds(seconds) == words


def test_all_methods_can_be_ticked() -> None:
    every = tuple(METHODS)
    assert [method.base for method in sent_request(methods=every).settings().measured] == list(
        METHODS.values()
    )
