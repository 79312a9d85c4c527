"""Table of answers by order: its state is what was computed, and a new run replaces one order only."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pine_engine.engine.engine import Engine
from tests.support.runs import THREE, finish
from viz.cards.shuffle import InOrders
from viz.figures.positions_by_order import DocumentPositions
from viz.page.answers.answering import FinishedRun, finished_cards
from viz.page.answers.cards import Shown, waiting_cards
from viz.page.answers.order_table import document_bars, order_table_json, with_run
from viz.page.answers.recorded_answers import recorded_of
from viz.page.form.examples import load_examples
from viz.page.form.options import DEFAULT_METHODS

ENTERED, OTHER, THIRD = (0, 1, 2), (2, 0, 1), (1, 0, 2)
ANSWERS = {"vanilla": ("red", "green"), "pine": ("red", "red")}


@pytest.fixture(scope="module")
def runs(engine: Engine) -> dict[tuple[int, ...], FinishedRun]:
    methods = tuple(ANSWERS)
    orders = (ENTERED, OTHER, THIRD)
    return {
        order: finish(engine, tuple(THREE[index] for index in order), methods=methods) for order in orders
    }


def table(**changes: Any) -> dict[str, Any]:
    shown = Shown(
        tuple(replace(card, state="finished") for card in waiting_cards(tuple(ANSWERS))),
        "retrieval_qa",
        in_orders=InOrders((ENTERED, OTHER, THIRD), ANSWERS),
    )
    state: dict[str, Any] = json.loads(order_table_json(replace(shown, **changes), ["red"]))
    return state


def test_order_table_of_computed_orders_scores_each_answer_and_leaves_the_others_open() -> None:
    vanilla, pine = table()["methods"]
    assert [answer and answer["is_correct"] for answer in vanilla["answers"]] == [True, False, None]
    assert [answer and answer["text"] for answer in pine["answers"]] == ["red", "red", None]
    assert (vanilla["is_order_invariant"], pine["is_order_invariant"]) == (False, True)
    assert table()["finding"] == (
        "Vanilla gave 2 answers, correct in 1 of 2 orders. PINE gave 1 answer, correct in 2 of 2 orders."
    )


def test_order_table_during_a_run_shows_the_text_so_far_in_its_order_without_a_score() -> None:
    cards = tuple(replace(card, state="writing", text="gre") for card in waiting_cards(tuple(ANSWERS)))
    state = table(cards=cards, order=THIRD)
    assert state["shown"] == 2 and state["is_busy"]
    for method in state["methods"]:
        assert method["answers"][2] == {
            **{"text": "gre", "is_done": False},
            **{"is_comparable": True, "is_correct": None},
        }


def test_order_table_without_accepted_answers_scores_nothing() -> None:
    shown, _ = recorded_of(load_examples()[0].form(DEFAULT_METHODS))
    state = json.loads(order_table_json(shown))
    answers = [answer for method in state["methods"] for answer in method["answers"]]
    assert len(answers) == 6 * len(DEFAULT_METHODS)
    assert {answer["is_correct"] for answer in answers} == {None} and "correct" not in state["finding"]
    assert "≠" in state["legend"] and table()["legend"] == ""
    assert "another dtype" in state["source"] and table()["source"] == "", "only recorded answers have one"


def test_answers_of_a_run_beside_recorded_ones_are_named_and_count_if_they_agree(
    runs: dict[tuple[int, ...], FinishedRun],
) -> None:
    live = runs[OTHER].result.answers["vanilla"].text
    recorded = InOrders(
        (ENTERED, OTHER),
        {"vanilla": ("red", live), "pine": ("red", "red")},
        recorded=dict.fromkeys((ENTERED, OTHER), "Old"),
    )
    mixed = with_run(recorded, runs[OTHER])
    assert mixed.replaced == {("pine", OTHER)} and mixed.answers["pine"][1] != "red"
    state = table(in_orders=mixed, order=OTHER)
    assert "Old, except C A B from your run;" in state["source"]
    flags = [[one["is_comparable"] for one in method["answers"]] for method in state["methods"]]
    assert flags == [[True, True], [True, False]]
    assert "Vanilla gave 2 answers," in state["finding"] and "PINE gave 1 answer," in state["finding"]
    own = with_run(mixed, runs[ENTERED])
    assert own.replaced == frozenset() and table(in_orders=own)["source"] == ""


def test_document_bars_of_shared_positions_are_stacked_and_fill_the_lane() -> None:
    lengths, starts = np.array([10, 20, 30]), {"pcw": np.array([5, 5, 5]), "vanilla": np.array([5, 15, 35])}
    positions = DocumentPositions(ENTERED, lengths, starts)
    stacked = document_bars(positions, "pcw")
    assert [bar["top"] for bar in stacked] == [0, 1 / 3, 2 / 3]
    assert [bar["left"] for bar in stacked] == [0, 0, 0]
    row = document_bars(positions, "vanilla")
    assert [bar["left"] for bar in row] == pytest.approx([0, 10 / 60, 30 / 60])
    assert row[-1]["left"] + row[-1]["width"] == pytest.approx(1)
    assert document_bars(positions, "pine") == []


def test_with_run_adds_a_new_order_and_replaces_a_known_one(runs: dict[tuple[int, ...], FinishedRun]) -> None:
    one = with_run(None, runs[ENTERED])
    assert one.orders == (ENTERED,) and len(one.positions) == 1
    two = with_run(replace(one, orders=(ENTERED, THIRD, OTHER)), runs[OTHER])
    assert two.orders == (ENTERED, OTHER, THIRD), "computed orders come first"
    assert [len(texts) for texts in two.answers.values()] == [2, 2]
    assert two.positions[1].order == OTHER
    again = with_run(replace(two, answers={method: ("old", "old") for method in two.answers}), runs[OTHER])
    assert again.orders == two.orders
    for method, answer in runs[OTHER].result.answers.items():
        assert again.answers[method] == ("old", answer.text)


def test_with_run_of_other_methods_starts_over(runs: dict[tuple[int, ...], FinishedRun]) -> None:
    before = InOrders((ENTERED, OTHER), {"nia": ("x", "y")})
    assert with_run(before, runs[THIRD]).orders == (THIRD,)
    assert [card.state for card in finished_cards(runs[THIRD].result)] == ["finished"] * 2
