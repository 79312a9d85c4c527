"""Tab "Evaluate": built-in and uploaded datasets, and the request of the widgets."""

import json
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gradio as gr
import pytest

from pine_engine.errors import InputError
from pine_engine.lab.evaluation.estimates import estimate_tasks
from pine_engine.lab.evaluation.grid import Grid
from pine_engine.lab.evaluation.record import Record
from pine_engine.scheduling.queue import FairQueue
from pine_engine.scheduling.run_state import StopFlag
from pine_engine.scheduling.runs import Runs
from tests.support.records import run_info, swept
from tests.support.running import sources_of
from tests.support.widgets import built, start_of, whole_page
from viz.lab.page import data_sets, evaluate, evaluate_view
from viz.lab.page.data_sets import (
    OWN,
    WRAPPED,
    DataSet,
    built_in_choices,
    orders_for,
    orders_meaning,
    read_built_in,
    read_set,
    read_uploaded,
    usual_orders,
    wrapped_choices,
    wrapped_for,
)
from viz.lab.page.evaluate import RedrawBudget, add_tab, chosen_rows
from viz.lab.page.evaluate_view import MeasureView
from viz.page.common.disk import Disk
from viz.page.common.host_settings import DEFAULTS
from viz.page.common.limits import MAX_ROWS
from viz.page.files.reading_files import FileReader, without_progress
from viz.page.form.documents import entries_from, entries_json
from viz.page.form.options import OFFERED
from viz.page.jobs.loader import EngineSource

SETS = [name for _, name in built_in_choices()]
ROW = {"id": "a", "task": "retrieval_qa", "question": "Why?", "documents": [{"text": "one"}, {"text": "two"}]}


@pytest.mark.parametrize("name", SETS)
def test_built_in_rows_are_scored_by_their_task(name: str) -> None:
    rows = read_built_in(name)
    assert rows.task.name == name and len(rows.examples) >= 4
    for example in rows.examples:
        assert example.source and example.license == "Apache-2.0"
        assert example.answers or rows.task.drawn_as  # many molecules have the same properties
        others = {answer for one in rows.examples for answer in one.answers} - {*example.answers}
        assert {rows.task.score(other, example.answers) for other in others} <= {0.0, 0.5}


def test_built_in_rows_favor_no_slot() -> None:
    assert {"retrieval_qa", "judge", "math_reasoning"} <= set(SETS)
    assert dict(built_in_choices())["Judge answers (6 examples)"] == "judge"
    rows = read_built_in("retrieval_qa")
    assert len({example.gold_index for example in rows.examples}) > 2
    for example in rows.examples:
        scores = [rows.task.score(document.text, example.answers) for document in example.documents]
        assert [index for index, score in enumerate(scores) if score] == [example.gold_index]
    answers = [example.answers for example in read_built_in("judge").examples]
    assert sorted(answers) == [["A"]] * 3 + [["B"]] * 3


def test_orders_are_those_that_fit_the_rows() -> None:
    question, math, judge = (
        orders_for(read_built_in(name)) for name in ("retrieval_qa", "math_reasoning", "judge")
    )
    assert {"gold-all", "gold-first", "all"} <= set(question) and "swapped" not in question
    assert "reversed" in math and not [name for name in math if name.startswith("gold")]
    assert {"swapped", "segments-swapped", "labels-swapped"} <= set(judge)
    assert usual_orders(judge) == ["as-is", "swapped"]
    assert usual_orders(math) == ["as-is", "reversed"]
    assert usual_orders(["gold-all"]) == ["gold-all"]
    assert orders_meaning(["reversed", "order:1-0"]) == "reversed: the last document first"


def test_wrappers_are_offered_where_they_apply(monkeypatch: pytest.MonkeyPatch) -> None:
    def offered(name: str) -> set[str]:
        return set(wrapped_for(read_built_in(name), WRAPPED))

    assert {wrapped.base.name for wrapped in WRAPPED} == set(OFFERED)
    fitting = [
        one for one in WRAPPED
        if not one.base.needs_scores and not (one.wrapper and one.wrapper.represents and one.base.merge)
    ]  # fmt: skip
    assert offered("judge") == {wrapped.name for wrapped in fitting}
    agreeing = {
        one.name for one in WRAPPED
        if one.wrapper and (one.wrapper.must_agree or one.wrapper.aggregation)
    }  # fmt: skip
    others = {one.name for one in fitting if one.generates} - agreeing  # of answers without letters
    full = {one.name for one in fitting if one.wrapper and one.wrapper.name == "permutation_full"}
    assert offered("retrieval_qa") == offered("math_reasoning") == others
    assert others - offered("qm9") == full
    monkeypatch.setattr(data_sets, "MAX_ORDERS", 23)
    clustered = {one.name for one in fitting if one.wrapper and one.wrapper.represents}  # all orders of four
    assert offered("retrieval_qa") == others - full - clustered
    assert [name for _, name in wrapped_choices(["pride:pine", "pride:nia"])] == ["pride:nia", "pride:pine"]


def rows_file(folder: Path, *rows: object) -> Path:
    file = folder / "mine.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def uploaded(file: Path) -> DataSet:
    return without_progress(read_uploaded(FileReader(Runs()), file, say=str))


def test_uploaded_rows_are_read_up_to_a_limit(tmp_path: Path) -> None:
    file = rows_file(tmp_path, *(ROW | {"id": str(number)} for number in range(MAX_ROWS + 1)))
    rows = read_set(file)
    assert (rows.name, len(rows.examples), rows.task.name) == ("mine.jsonl", MAX_ROWS, "retrieval_qa")
    assert len(rows.sha256) == 64 and uploaded(file) == rows
    assert chosen_rows(OWN, rows) is rows
    with pytest.raises(InputError):
        chosen_rows(OWN, None)


def test_invalid_row_is_named_by_file_and_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="^File mine.jsonl, line 2: gold_index is 2"):
        uploaded(rows_file(tmp_path, ROW, ROW | {"id": "b", "gold_index": 2}))
    with pytest.raises(InputError, match="mine.jsonl mixes tasks: retrieval_qa, kv_retrieval"):
        read_set(rows_file(tmp_path, ROW, ROW | {"id": "b", "task": "kv_retrieval"}))
    with pytest.raises(
        InputError, match="mine.jsonl, line 2: too many documents: got 21, expected at most 20"
    ):
        uploaded(rows_file(tmp_path, ROW, ROW | {"id": "b", "documents": ["x"] * 21}))


def test_orders_of_many_documents_are_counted_without_lists(tmp_path: Path) -> None:
    """The 2,000 rotations of 2,000 documents are 32 MB, for each of 108 methods."""
    rows = read_set(rows_file(tmp_path, ROW | {"documents": ["x"] * 2_000}))
    tracemalloc.start()
    assert wrapped_for(rows, WRAPPED)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000


def test_tables_are_drawn_within_a_share_of_the_time(clock: list[float]) -> None:
    drawn: list[int] = []

    def draw(view: MeasureView) -> dict[Any, Any]:
        drawn.append(len(view.records))
        clock[0] += 1  # second
        return {"tables": len(view.records)}

    budget, record = RedrawBudget(), swept("a", "pine", 0, score=1.0)
    updates = []
    for number in range(1_000):
        clock[0] += 0.1
        updates.append(budget.draw(draw, MeasureView("", run_info(), (), (record,) * number)))
    assert updates[:3] == [{}, {"tables": 1}, {}] and 5 <= len(drawn) <= 7


def test_few_estimates_are_computed_and_the_last_are_shown(
    source: EngineSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def estimate(records: Sequence[Record]) -> tuple[Grid, ...]:
        calls.append(len(records))
        return estimate_tasks(records)

    def build() -> Any:
        with gr.Blocks() as page:
            sources, reader = sources_of(source, runs=Runs(FairQueue(1))), FileReader(Runs())
            shared = sources, gr.State(None), gr.State(None), DEFAULTS, Disk(tmp_path, 1e6), reader
            add_tab(page, *shared)
        return page

    monkeypatch.setattr(evaluate, "SHOWN_SHARE", 1e-9)
    monkeypatch.setattr(evaluate_view, "estimate_tasks", estimate)
    request: tuple[Any, ...] = (
        "retrieval_qa",
        None,
        2,
        ["vanilla", "pine"],
        [],
        ["as-is", "reversed"],
        ["logprob"],
        8,
    )
    *_, last = start_of(built(build), "measure")(StopFlag(), None, "", None, *request)
    (tables,) = [html for widget, html in last.items() if widget.elem_id == "measure-tables"]
    assert "8 of 8 records" in tables and calls[-1] == 8 and len(calls) <= 2


def test_invalid_and_beginning_jobs_clear_no_results() -> None:
    page = whole_page()

    def first_updates(name: str, *values: Any) -> set[str]:
        updates = next(start_of(page, name)(StopFlag(), None, "", *values))
        return {widget.elem_id for widget in updates} - {None}

    for methods in ([], ["pine"]):
        request: tuple[Any, ...] = ("retrieval_qa", None, 2, methods, [], ["as-is"], ["generate"], 8)
        assert first_updates("measure", None, *request) == {"measure-status", "measure-stop"}
    form = ("retrieval_qa", "Which?", "", ["pine"], 8, entries_json(entries_from([("", "a"), ("", "b")])))
    assert first_updates("sweep", None, 0, "", *form) == {"sweep-status", "sweep-stop"}
