"""Buttons that start: labels for all, missing and sampled orders."""

import json
from dataclasses import replace

import pytest

from viz.cards.answers import AnswerCard
from viz.page.answers.order_answers import OrderAnswers
from viz.page.answers.recordings import recorded_of
from viz.page.answers.shown import Shown
from viz.page.answers.start import num_missing, start_json
from viz.page.form.examples import load_examples
from viz.page.form.options import DEFAULT_METHODS

EXAMPLE = load_examples()[0].form(DEFAULT_METHODS)


@pytest.mark.parametrize(
    ("documents", "missing", "label"),
    [(1, 1, "Run"), (3, 6, "Run 6 orders"), (3, 1, "Run 1 order"), (3, 0, "▶ Play 6 orders"),
     (5, 7, "Run 7 sampled orders"), (5, 0, "▶ Play 7 sampled orders")],
)  # fmt: skip
def test_label_states_what_the_button_does(documents: int, missing: int, label: str) -> None:
    state = json.loads(start_json(documents, 7, missing))
    assert (state["label"], state["plays"]) == (label, missing == 0)


def test_recorded_answers_miss_no_order_until_the_form_changes() -> None:
    shown = recorded_of(EXAMPLE)
    assert num_missing((EXAMPLE, None), EXAMPLE.methods, shown, 2) == 0
    assert num_missing((EXAMPLE, None), ("vanilla",), shown, 2) == 0
    assert num_missing((EXAMPLE, None), (*EXAMPLE.methods, "sp"), shown, 2) == 6
    assert num_missing((replace(EXAMPLE, question="Another?"), None), EXAMPLE.methods, shown, 2) == 6
    assert shown.finished_orders((EXAMPLE, None), EXAMPLE.methods, live=True) == []


def test_own_answers_of_other_methods_are_missing() -> None:
    cards = tuple(AnswerCard(method, text="x") for method in EXAMPLE.methods)
    answers = OrderAnswers(dict.fromkeys(EXAMPLE.methods, "x"))
    shown = Shown(EXAMPLE, cards, earlier={EXAMPLE.order: answers})
    assert num_missing((EXAMPLE, None), EXAMPLE.methods, shown, 2) == 5
    assert num_missing((EXAMPLE, None), (*EXAMPLE.methods, "mask_only"), shown, 2) == 6
