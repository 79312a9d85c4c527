"""Table of answers by order: its state is what was computed, and a new run replaces one order only."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pine_engine import Engine
from tests.support.runs import THREE, finish, form_of
from viz.cards.answers import AnswerCard
from viz.figures.answer_origin import AnswerOrigin
from viz.figures.method_positions import plot_method_positions
from viz.figures.positions_by_order import DocumentPositions
from viz.page.answers.order_answers import Order, OrderAnswers
from viz.page.answers.order_table import document_bars, order_table_json, query_place
from viz.page.answers.recordings import MAX_NEW_TOKENS, recorded_of
from viz.page.answers.run import Run
from viz.page.answers.shown import Shown, keep_earlier
from viz.page.form.examples import FormExample, load_examples
from viz.page.form.form import Form
from viz.page.form.options import DEFAULT_METHODS

ENTERED, OTHER, THIRD = (0, 1, 2), (2, 0, 1), (1, 0, 2)
ANSWERS: dict[Order, OrderAnswers] = {
    ENTERED: OrderAnswers({"vanilla": "red", "pine": "red"}),
    OTHER: OrderAnswers({"vanilla": "green", "pine": "red"}),
}


def form_in(order: Order) -> Form:
    return form_of(tuple(THREE[letter] for letter in order))


def shown(**changes: Any) -> Shown:
    cards = tuple(AnswerCard(method, "finished") for method in ("vanilla", "pine"))
    return replace(Shown(form_in(ENTERED), cards, (THIRD,), earlier=ANSWERS), **changes)


def table(view: Shown | None = None, **changes: Any) -> dict[str, Any]:
    state: dict[str, Any] = json.loads(order_table_json(view or shown(**changes), ["red"]))
    return state


def run_of(orders: Mapping[Order, OrderAnswers]) -> Run:
    nothing: Any = None
    return Run(form_in(next(iter(orders))), "tiny", "float32", "tiny", nothing, (), orders)


def test_order_table_of_computed_orders_scores_each_answer_and_leaves_the_others_open() -> None:
    vanilla, pine = table()["methods"]
    assert [answer and answer["is_correct"] for answer in vanilla["answers"]] == [True, False, None]
    assert [answer and answer["text"] for answer in pine["answers"]] == ["red", "red", None]
    assert (vanilla["is_order_invariant"], pine["is_order_invariant"]) == (False, True)
    assert table()["finding"] == (
        "2 of 3 orders so far. "
        "Vanilla gave 2 answers, correct in 1 of 2 orders. PINE gave 1 answer, correct in 2 of 2 orders."
    )


def test_headline_compares_no_method_with_one_that_has_no_answers() -> None:
    earlier = {order: OrderAnswers({"pine": "red"}) for order in ANSWERS}
    assert table(earlier=earlier)["headline"] == table(earlier=earlier)["finding"] == "0 of 3 orders so far."


def test_headline_counts_answers_and_names_a_method_that_is_never_correct() -> None:
    complete = shown(planned=tuple(ANSWERS))
    assert table(complete)["headline"] == "Vanilla gave 2 answers. PINE gave 1 answer."
    assert table()["headline"] == "2 of 3 orders so far. Vanilla gave 2 answers. PINE gave 1 answer."
    wrong = json.loads(order_table_json(complete, ["green"]))
    assert wrong["headline"] == "Vanilla gave 2 answers. PINE gave 1 answer, correct in 0 of 2 orders."


@pytest.mark.parametrize("example", load_examples(), ids=lambda example: example.name)
def test_challenge_names_what_it_changed(example: FormExample) -> None:
    changed = json.loads(order_table_json(recorded_of(example.form(DEFAULT_METHODS))))["changed"]
    first = load_examples()[0]
    kept = zip(example.documents, first.documents, strict=False)
    same = [place for place, (one, other) in enumerate(kept) if one.text == other.text]
    assert (changed is not None) == bool(example.challenge)
    if changed:
        assert changed["question"] == (example.question != first.question)
        assert sorted([*changed["documents"], *same]) == list(range(len(example.documents)))


def test_order_table_has_the_token_of_traced_answers_only() -> None:
    origin = AnswerOrigin(" red", 2, 0, 3, 1, (0.25, 0.5, 0.125), layer=4, head=5)
    entered = replace(ANSWERS[ENTERED], origins={"pine": origin})
    state = table(earlier={ENTERED: entered, OTHER: ANSWERS[OTHER]})
    vanilla, pine = state["methods"]
    assert pine["answers"][0]["token"] == " red"
    others = [vanilla["answers"][0], *pine["answers"][1:]]
    assert not any(answer and "token" in answer for answer in others)
    assert (state["query_token"], table()["query_token"]) == (" red", "")


def test_order_table_of_a_judge_compares_verdicts() -> None:
    """Vanilla names the first answer in both orders, with other words; PINE names B."""
    texts = {ENTERED: ("It is [[A]]", "[[B]]"), OTHER: ("So: [[C]]", "B, [[B]]")}
    answers = {
        order: OrderAnswers({"vanilla": vanilla, "pine": pine}) for order, (vanilla, pine) in texts.items()
    }
    view = shown(form=replace(form_in(ENTERED), task="judge"), earlier=answers, planned=())
    vanilla, pine = json.loads(order_table_json(view))["methods"]
    assert [answer and answer["verdict"] for answer in vanilla["answers"]] == ["A", "C"]
    assert [answer and answer["is_first"] for answer in pine["answers"]] == [False, False]
    assert json.loads(order_table_json(view))["finding"] == (
        "Vanilla gave 2 verdicts, for the first answer in 2 of 2 orders. "
        "PINE gave 1 verdict, for the first answer in 0 of 2 orders."
    )


def test_order_table_during_a_run_shows_the_text_so_far_in_its_order_without_a_score() -> None:
    cards = tuple(AnswerCard(method, "writing", "gre") for method in ("vanilla", "pine"))
    state = table(cards=cards, form=form_in(THIRD))
    assert state["shown"] == 2 and state["is_busy"]
    for method in state["methods"]:
        assert method["answers"][2] == {
            **{"text": "gre", "is_done": False},
            **{"is_comparable": True, "is_correct": None, "is_cut_off": False},
        }


def test_stopped_answer_replaces_none_and_is_not_counted() -> None:
    cards = tuple(AnswerCard(method, "stopped", "gre") for method in ("vanilla", "pine"))
    known, new = table(cards=cards), table(cards=cards, form=form_in(THIRD))
    assert [method["answers"][0]["text"] for method in known["methods"]] == ["red", "red"]
    stopped = [method["answers"][2] for method in new["methods"]]
    assert [(cell["text"], cell["is_done"], cell["is_correct"]) for cell in stopped] == [
        ("gre", False, None)
    ] * 2
    assert not new["is_busy"] and known["finding"] == new["finding"] == table()["finding"]


def test_order_table_without_accepted_answers_scores_nothing() -> None:
    state = json.loads(order_table_json(recorded_of(load_examples()[0].form(DEFAULT_METHODS))))
    answers = [answer for method in state["methods"] for answer in method["answers"]]
    assert len(answers) == 6 * len(DEFAULT_METHODS)
    assert {answer["is_correct"] for answer in answers} == {None} and "correct" not in state["finding"]
    assert f"at most {MAX_NEW_TOKENS} new tokens" in state["source"]
    assert table()["source"] == "", "only recorded answers have one"


def test_cut_off_answer_is_not_correct_but_contains_the_answer() -> None:
    orders = {order: replace(answers, cut_off=frozenset({"pine"})) for order, answers in ANSWERS.items()}
    state = json.loads(order_table_json(shown(earlier=orders), ["green", "red"]))
    before = json.loads(order_table_json(shown(), ["green", "red"]))
    for method, uncut in zip(state["methods"], before["methods"], strict=True):
        for cell, whole in zip(method["answers"], uncut["answers"], strict=True):
            if cell:
                is_cut = method["name"] == "pine" and whole["is_correct"]
                assert cell["is_cut_off"] == is_cut
                assert cell["is_correct"] == (whole["is_correct"] and not is_cut)
    assert "more contain the answer" in state["finding"] and "more contain" not in before["finding"]


def test_answers_of_a_run_beside_recorded_ones_are_named_and_count_if_they_agree() -> None:
    recorded = {
        order: replace(answers, source="recorded", model=("Old",)) for order, answers in ANSWERS.items()
    }
    own = OrderAnswers({"vanilla": "green", "pine": "blue"})
    view = shown(earlier={}, planned=(OTHER,), run=run_of({OTHER: own}))
    mixed = keep_earlier(shown(earlier=recorded), view)
    assert mixed.orders[OTHER].changed == {"pine"} and mixed.orders[OTHER].texts["pine"] == "blue"
    state = table(mixed)
    assert "new tokens, except C A B from your run;" in state["source"]
    flags = [[one and one["is_comparable"] for one in method["answers"]] for method in state["methods"]]
    assert flags == [[True, True, None], [True, False, None]]
    assert "Vanilla gave 2 answers," in state["finding"] and "PINE gave 1 answer," in state["finding"]
    whole = keep_earlier(mixed, shown(earlier={}, run=run_of({ENTERED: ANSWERS[ENTERED]})))
    assert table(whole)["source"] == "" and "PINE gave 2 answers," in table(whole)["finding"]


def test_run_adds_a_new_order_and_replaces_a_known_one() -> None:
    new = OrderAnswers({"vanilla": "white", "pine": "red"})
    third = keep_earlier(shown(), shown(earlier={}, planned=(THIRD,), run=run_of({THIRD: new})))
    assert third.all_orders == (ENTERED, OTHER, THIRD)
    again = keep_earlier(third, shown(earlier={}, run=run_of({ENTERED: new})))
    assert again.orders == {ENTERED: new, OTHER: ANSWERS[OTHER], THIRD: new}


def test_run_of_other_methods_starts_over() -> None:
    view = Shown(form_in(THIRD), (AnswerCard("nia"),), (THIRD,))
    assert keep_earlier(shown(), view).all_orders == (THIRD,) == keep_earlier(None, view).all_orders


def test_document_bars_of_shared_positions_are_stacked_and_fill_the_lane() -> None:
    lengths, starts = np.array([10, 20, 30]), {"pcw": np.array([5, 5, 5]), "vanilla": np.array([5, 15, 35])}
    positions = DocumentPositions(ENTERED, lengths, starts, {})
    stacked = document_bars(positions, "pcw")
    assert [bar["top"] for bar in stacked] == [0, 1 / 3, 2 / 3]
    assert [bar["left"] for bar in stacked] == [0, 0, 0]
    row = document_bars(positions, "vanilla")
    assert [bar["left"] for bar in row] == pytest.approx([0, 10 / 60, 30 / 60])
    assert row[-1]["left"] + row[-1]["width"] == pytest.approx(1)
    assert document_bars(positions, "pine") == []
    assert query_place(positions, "vanilla") is None
    known = positions._replace(queries={"pcw": 45, "vanilla": 105})
    assert [query_place(known, method) for method in ("pcw", "vanilla")] == pytest.approx([0.4, 1])
    assert document_bars(known, "vanilla")[-1]["left"] == pytest.approx(0.3)


def test_positions_of_table_are_those_of_the_lab(engine: Engine) -> None:
    run = finish(engine, THREE, methods=("vanilla", "pcw", "pine"))
    view = Shown(run.form, tuple(map(AnswerCard, run.form.methods)), run=run)
    in_lab, in_table = [], []
    for method in json.loads(order_table_json(view))["methods"]:
        name = method["name"]
        origin, traces = run.origins[name], {name: run.result.traces[name]}
        query = run.result.layout.suffix_length - 1 + origin.step
        figure = plot_method_positions(traces, query=query, layer=origin.layer, head=origin.head)
        *bars, mark = figure.data
        in_lab += [*(float(bar.base[0]) for bar in bars), float(mark.x[0])]
        in_table += [*(bar["left"] for bar in method["positions"][0]), method["queries"][0]]
    first, end = min(in_lab), max(in_lab)
    assert in_table == pytest.approx([(position - first) / (end - first) for position in in_lab])
