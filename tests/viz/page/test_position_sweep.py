"""Position sweep of the page: the values, the reference answer, and the sentences around them."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

from pine_engine.engine.engine import Engine
from pine_engine.errors import InputError
from pine_engine.scheduling.run_state import StopFlag
from tests.support.running import new_views, views_of
from tests.support.runs import THREE, form_of, swapped
from tests.support.widgets import start_of, whole_page
from viz.figures.position_sweep import plot_position_sweep
from viz.page.form.checks import form_layout
from viz.page.form.documents import entries_json
from viz.page.form.examples import load_examples
from viz.page.form.form import Form
from viz.page.position_sweep import moved_at_first, work_sentence
from viz.page.position_sweep_job import compared_methods, prepare_sweep


def form(*methods: str) -> Form:
    return form_of(swapped(THREE, 0), methods=methods)


def test_sweep_follows_a_document_with_scores_of_the_engine(engine: Engine) -> None:
    request = form("vanilla", "nia", "pine")
    views = list(views_of(prepare_sweep, engine, request, document=0, answer=" so "))
    assert pickle.loads(pickle.dumps(views)) == views  # as on ZeroGPU
    assert [len(view.steps) for view in new_views(views) if view.finding] == [1, 2, 3, 3]
    last, layout = views[-1], form_layout(request, engine)  # B, A, C: the letters in the slots
    figure = plot_position_sweep(last.steps, slots=last.slots)
    for slot, order in enumerate([(1, 0, 2), (0, 1, 2), (0, 2, 1)]):
        expected = engine.score(layout.reorder(order), ["so"], methods=request.methods)
        for line in figure.data:
            assert line.y[slot] == np.float32(expected[line.name][0].total)
    assert "as document A moves through 3 slots" in last.finding
    assert "PINE: constant (range 0.0)" in last.finding
    assert last.effects is not None
    for total, *parts in zip(last.effects.total, last.effects.rope, last.effects.causal, strict=True):
        assert total == pytest.approx(sum(parts), abs=1e-9)
    assert views[-1].sentence.startswith("Done: 3 slots in ") and "“so”" in views[-1].sentence


def test_empty_target_answer_is_replaced_by_that_of_pine(engine: Engine) -> None:
    request = form("vanilla", "nia")
    written = (
        engine.run(form_layout(request, engine), methods=["pine"], max_new_tokens=3).answers["pine"].text
    )
    assert written.strip()
    *_, last = views_of(prepare_sweep, engine, request, document=2, answer="  ")
    assert last.sentence.endswith(f"Target answer: “{written.strip()}”")


def test_invalid_sweep_shows_its_problem(engine: Engine) -> None:
    alone = replace(form("vanilla", "nia"), entries=THREE[:1])
    with pytest.raises(InputError, match="Add a second document"):
        next(views_of(prepare_sweep, engine, alone, document=0, answer="so"))
    with pytest.raises(InputError, match="Document D no longer exists"):
        next(views_of(prepare_sweep, engine, form("vanilla", "nia"), document=3, answer="so"))
    silent = Engine(engine.model, engine.tokenizer, stop_token_ids=frozenset(range(97)))
    with pytest.raises(InputError, match="PINE’s answer is empty"):
        list(views_of(prepare_sweep, silent, form("vanilla", "nia"), document=0, answer=""))


def test_sweep_without_a_selected_document_moves_none() -> None:
    run = start_of(whole_page(), "sweep")
    values = ("retrieval_qa", "Which?", "", ["vanilla"], 3, entries_json(THREE))
    (shown,) = run(StopFlag(), None, "", None, None, "so", *values)  # a dropdown that was emptied
    assert "No document selected" in str(shown)


def test_sweep_always_adds_vanilla_and_nia() -> None:
    assert compared_methods(["pine"]) == ("vanilla", "nia", "pine")
    assert compared_methods(["pcw", "vanilla", "nia"]) == ("vanilla", "nia", "pcw")
    assert work_sentence(4, ["vanilla", "nia", "pine"]) == "4 slots × 3 methods."
    assert work_sentence(2, ["nia"]) == "2 slots × 2 methods (plus Vanilla)."
    assert work_sentence(1, ["nia"]) == "Add a document to run a sweep: there is only one slot."


def test_document_to_move_is_the_selected_gold_or_first_one() -> None:
    assert moved_at_first([2, 0, 1], 2, 1) == 2
    assert moved_at_first([2, 0, 1], None, 1) == moved_at_first([2, 0, 1], 7, 1) == 1
    assert moved_at_first([2, 4], None, 1) == moved_at_first([2, 4], None, None) == 2
    assert moved_at_first([], 0, 0) is None
    first, math = load_examples()[0], next(one for one in load_examples() if one.task == "math_reasoning")
    assert first.answers[0] in first.documents[first.gold].text and first.gold == 1
    assert math.gold == 0, "no document contains the answer"
