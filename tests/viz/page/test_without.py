"""Answers without each document: their job, what starts it, and the record that keeps them."""

import json
import math
import pickle
from dataclasses import replace
from typing import Any

import pytest

from pine_engine.engine.engine import Engine
from pine_engine.errors import InputError
from pine_engine.scheduling.run_state import StopFlag
from pine_engine.scheduling.runs import Runs
from tests.support.running import views_of
from tests.support.runs import THREE, finish, form_of, swapped
from tests.support.widgets import workspace
from viz.cards.answers import AnswerCard
from viz.page.answers.order_answers import OrderAnswers
from viz.page.answers.order_table import order_table_json
from viz.page.answers.record import record_of, with_answers
from viz.page.answers.run import Run
from viz.page.answers.shown import Shown
from viz.page.common.host_settings import DEFAULTS
from viz.page.form.documents import Entries, entries_from, entries_json
from viz.page.jobs.job_bar import ButtonJob
from viz.page.without import MAX_AUTOMATIC, PRESS_EYE, begin_without, letters_to_run, show_without
from viz.page.without_job import WithoutView, falls_of, prepare_without, without_document

METHODS = ("vanilla", "pine")
RUNS = Runs()
B_A_C = swapped(THREE, 0)


@pytest.fixture(scope="module")
def run(engine: Engine) -> Run:
    return finish(engine, B_A_C, methods=METHODS)


@pytest.fixture(scope="module")
def views(engine: Engine, run: Run) -> list[WithoutView]:
    return list(views_of(prepare_without, engine, run.form, (2, 0, 1)))


def shown_of(run: Run) -> Shown:
    return Shown(run.form, tuple(map(AnswerCard, METHODS)), planned=(run.order,), run=run)


def test_answers_equal_those_of_a_run_without_the_card(
    engine: Engine, run: Run, views: list[WithoutView]
) -> None:
    last = views[-1]
    for letter in range(3):
        kept = [entry for entry in B_A_C if entry.letter != letter]
        expected = finish(engine, without_document(run.form, letter).entries, methods=METHODS)
        assert [entry.text for entry in expected.form.entries] == [entry.text for entry in kept]
        for method in METHODS:
            assert last.texts[method][letter] == expected.result.answers[method].text
    assert last.is_complete and last.done.prompts == 3 * len(METHODS)


def test_falls_are_those_of_leave_one_out_in_the_order_of_the_letters(engine: Engine, run: Run) -> None:
    *views, last = views_of(prepare_without, engine, run.form, (0,), DEFAULTS, run.result)
    expected = engine.leave_one_out(run.result)
    falls = falls_of(last.scores, run.order)
    by_slot = {name: [of_letter[letter] for letter in run.order] for name, of_letter in falls.items()}
    assert by_slot == {name: list(one.differences) for name, one in expected.items()}
    assert last.is_complete and all(view.is_complete == (view.scores == last.scores) for view in views)
    updates = show_without(workspace(), shown_of(run), run.form, "", last)
    (shown,) = (value for value in updates.values() if isinstance(value, Shown))
    assert shown.run is not None and shown.run.left_out == expected  # the Lab does not compute them again
    assert shown.orders[run.order].falls == falls
    assert pickle.loads(pickle.dumps(last)) == last


def test_first_answers_are_without_the_first_letter(views: list[WithoutView]) -> None:
    known = [[text is not None for text in view.texts["pine"]] for view in views]
    first, *_, last = [one for one in known if any(one)]
    assert (first, last) == ([False, False, True], [True] * 3)
    assert not views[0].is_complete
    assert pickle.loads(pickle.dumps(views)) == views  # ZeroGPU sends them from another process


@pytest.mark.parametrize("changes", [{"entries": THREE[:1]}, {"task": "judge_n", "question": "Which?"}])
def test_answers_by_letter_leave_nothing_out(engine: Engine, changes: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        prepare_without(engine, replace(form_of(B_A_C), **changes), (0,))


def test_documents_without_answers_are_run_the_pressed_one_first(run: Run) -> None:
    shown = shown_of(run)
    assert letters_to_run(run.form, shown, -1) == [0, 1, 2]
    assert letters_to_run(run.form, shown, 1) == [1, 0, 2]
    known = shown.with_texts_without(run.order, {name: ("x", None, None) for name in METHODS})
    assert letters_to_run(run.form, known, 2) == [2, 1]
    many = form_of(entries_from([("", str(number)) for number in range(MAX_AUTOMATIC + 1)]))
    long = replace(shown, form=many, run=None, earlier={many.order: OrderAnswers({})})
    assert (letters_to_run(many, long, 4), letters_to_run(many, long, -1)) == ([4], [*many.order])


def test_job_begins_beside_answers_to_the_same_inputs_only(run: Run) -> None:
    page = workspace()
    form, shown = run.form, shown_of(run)

    def begin(
        letter: float | None, shown: Shown, entries: Entries = form.entries, runs: Runs = RUNS
    ) -> object:
        values = form.task, form.question, form.instruction, form.methods, form.max_new_tokens
        texts = entries_json(entries)
        return begin_without(page, DEFAULTS, runs, letter, shown, None, "", *values, texts)

    press = begin(-1, shown)
    assert isinstance(press, ButtonJob) and isinstance(begin(1, shown), ButtonJob)
    complete = shown.with_texts_without(form.order, {name: ("x", "y", "z") for name in METHODS})
    for letter in (math.nan, None, 7, -1, 0):
        assert begin(letter, complete) == ""
    others = entries_from([("", "other"), ("", "green"), ("", "hats")])
    assert begin(-1, shown, others) == ""
    with pytest.raises(InputError):
        begin(0, shown, others)
    busy = Runs()
    with busy.recorded(busy.new("compare", ["pine"], StopFlag())):
        assert begin(-1, shown, runs=busy) == PRESS_EYE
        assert isinstance(begin(1, shown, runs=busy), ButtonJob)
    recorded = Shown(
        form, shown.cards, earlier={run.order: replace(run.orders[run.order], source="recorded")}
    )
    assert begin(-1, recorded) == PRESS_EYE and isinstance(begin(0, recorded), ButtonJob)
    many = form_of(entries_from([("", str(number)) for number in range(MAX_AUTOMATIC + 1)]))
    orders = {many.order: OrderAnswers(dict.fromkeys(METHODS, "x"))}
    after = shown_of(replace(run, form=many, orders=orders))
    assert begin(-1, after, many.entries) == PRESS_EYE
    assert isinstance(begin(4, after, many.entries), ButtonJob)


def test_table_and_record_have_the_answers_without_each_document(run: Run) -> None:
    texts = {"vanilla": ("a", "b", None), "pine": ("c", "d", "e")}
    falls = {"pine": (0.5, -1.25, 7.0)}
    shown = shown_of(run).with_texts_without(run.order, texts, falls)
    assert shown.run is not None and shown.run.orders[run.order].texts_without == texts
    cells = [method["answers"][0] for method in json.loads(order_table_json(shown))["methods"]]
    assert [cell["without"] for cell in cells] == [["a", "b", None], ["c", "d", "e"]]
    record = with_answers(record_of(replace(run.form, max_new_tokens=8), ran=True), shown.orders)
    opened = type(record).model_validate_json(record.model_dump_json())
    assert [cell["falls"] for cell in cells] == [None, list(falls["pine"])]
    assert opened.by_order()[run.order].texts_without == texts
    assert opened.by_order()[run.order].falls == falls
    without = opened.without("texts_without").by_order()[run.order]
    assert not without.texts_without and not without.falls
    again = shown.with_texts_without(run.order, {"vanilla": (None, None, "f"), "pine": (None,) * 3})
    assert again.orders[run.order].texts_without == texts | {"vanilla": ("a", "b", "f")}
