"""Leave one out in the Lab: the scores of the selected method, their figure, and the run that keeps them."""

from dataclasses import replace

import numpy as np
import pytest

from pine_engine.engine.engine import Engine
from pine_engine.errors import InputError
from tests.support.running import views_of
from tests.support.runs import THREE, finish, swapped
from viz.figures.leave_one_out import leave_one_out_sentence
from viz.page.answers.run import Run
from viz.page.internals.importance import draw_importance
from viz.page.internals.left_out_job import LeftOutView, left_out_request, prepare_left_out
from viz.page.internals.tab import keep_left_out
from viz.page.selection import first_selection


@pytest.fixture(scope="module")
def run(engine: Engine) -> Run:
    """The documents B, A, C, in that order."""
    return finish(engine, swapped(THREE, 0), methods=("vanilla", "pine"))


@pytest.fixture(scope="module")
def view(engine: Engine, run: Run) -> LeftOutView:
    request = left_out_request(run, "pine")
    *_, last = views_of(prepare_left_out, engine, request, run.model)
    plan = prepare_left_out(engine, request, run.model).work
    assert (last.done.prompts, last.is_complete) == (plan.prompts, True)
    return last


def test_scores_are_drawn_for_their_method_and_kept_with_their_run(
    engine: Engine, run: Run, view: LeftOutView
) -> None:
    expected = engine.leave_one_out(run.result, methods="pine")
    assert view.scores == expected
    kept, selection = keep_left_out(run, view), first_selection(run)
    assert kept.left_out == expected and run.left_out == {}
    drawn = draw_importance(kept, selection)
    (bars,) = drawn.figures["leave-one-out"].data
    np.testing.assert_array_equal(bars.y, np.array(expected["pine"].differences, np.float32))
    assert list(bars.x) == ["B", "A", "C"] and "nats less without it" in drawn.html
    for other in (
        draw_importance(run, selection),
        draw_importance(kept, replace(selection, method="vanilla")),
    ):
        assert "leave-one-out" not in other.figures and "nats less" not in other.html


def test_scores_of_another_run_are_not_kept(engine: Engine, run: Run, view: LeftOutView) -> None:
    other = finish(engine, THREE, methods=("vanilla", "pine"))
    assert not isinstance(keep_left_out(other, view), Run) and not isinstance(keep_left_out(run, None), Run)
    with pytest.raises(InputError):
        prepare_left_out(engine, left_out_request(run, "pine"), "another model")


def test_sentence_says_if_attention_is_on_the_document_that_the_answer_needs(
    run: Run, view: LeftOutView
) -> None:
    result, order = view.scores["pine"], run.order
    needed = order[int(np.argmax(result.differences))]
    for document, verdict in ((needed, "agree"), ((needed + 1) % 3, "misleads")):
        origin = replace(run.origins["pine"], document=document)
        assert verdict in leave_one_out_sentence(result, origin, label="PINE", order=order)
