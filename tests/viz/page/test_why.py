"""Tab "Why": what its steps show of a run, and the runs that it can explain."""

import json
from dataclasses import replace
from itertools import accumulate

import numpy as np
import pytest

from tests.support.runs import with_orders
from viz.cards.answers import AnswerCard
from viz.drawing.text import shorten
from viz.figures.answer_tokens import head_attention
from viz.figures.frame import answer_queries
from viz.page.answers.recordings import recorded_of
from viz.page.answers.tutorial_recording import tutorial_recording
from viz.page.form.examples import FormExample, load_examples
from viz.page.form.options import DEFAULT_METHODS
from viz.page.why import METHODS, STEPS, can_explain, why_json, why_record

RUN = tutorial_recording().run
RECORD = why_record(RUN)
HALF_PRECISION = 1e-3  # of recorded attention, and three digits


@pytest.mark.parametrize("method", METHODS)
def test_first_order_has_attention_and_positions_of_the_trace(method: str) -> None:
    shown, trace = RECORD["orders"][0][method], RUN.result.traces[method]
    layer, head, queries = RECORD["layer"], RECORD["head"], answer_queries(trace.layout, len(shown["tokens"]))
    assert trace.suffix_attention is not None
    attention = trace.suffix_attention[layer, head, queries, 1:-1]
    np.testing.assert_allclose(shown["shares"], attention, atol=HALF_PRECISION)
    starts = np.broadcast_to(trace.suffix_starts, trace.suffix_attention.shape[:3] + attention.shape[1:])
    assert shown["starts"] == starts[layer, head, queries].tolist()


def test_other_orders_move_documents_of_vanilla_only() -> None:
    lengths = [document["length"] for document in RECORD["documents"]]
    for shown in RECORD["orders"]:
        ends = accumulate((lengths[document] for document in shown["order"]), initial=RECORD["prefix_length"])
        starts = dict(zip(shown["order"], ends, strict=False))
        assert all(row == [starts[0], starts[1], starts[2]] for row in shown["vanilla"]["starts"])
        assert shown["pine"] == RECORD["orders"][0]["pine"]
    assert len({"".join(shown["vanilla"]["tokens"]) for shown in RECORD["orders"]}) == 3


def test_steps_have_the_answers_without_each_document() -> None:
    texts = {"vanilla": ("a", "b", None), "pine": ("c", "d", "e")}
    orders = {**RUN.orders, RUN.order: replace(RUN.orders[RUN.order], texts_without=texts)}
    first, second, *_ = json.loads(why_json(replace(RUN, orders=orders)))["orders"]
    assert [first[method]["without"] for method in METHODS] == [["a", "b", None], ["c", "d", "e"]]
    assert second["pine"]["without"] is None


def test_first_token_is_where_the_answers_part() -> None:
    (step,) = {shown[method]["token"] for shown in RECORD["orders"] for method in METHODS}
    pairs = [[shown[method]["tokens"] for method in METHODS] for shown in RECORD["orders"]]
    assert all(vanilla[:step] == pine[:step] for vanilla, pine in pairs)
    assert any(vanilla[step] != pine[step] for vanilla, pine in pairs)
    assert step == RUN.origins["pine"].step  # as in the table


def test_pine_places_documents_by_score_and_vanilla_has_none() -> None:
    pine, vanilla = (RECORD["orders"][0][method] for method in ("pine", "vanilla"))
    assert vanilla["scores"] is None
    for starts, scores in zip(pine["starts"], pine["scores"], strict=True):
        assert sum(scores) == pytest.approx(1, abs=2e-3)
        assert starts[int(np.argmax(scores))] == max(starts)


def test_attention_of_a_head_is_by_document_as_entered() -> None:
    trace, order, num_tokens = RUN.result.traces["pine"], (2, 0, 1), 4
    seen = head_attention(trace, num_tokens, order, 3, 5)
    queries = answer_queries(trace.layout, num_tokens)
    assert seen and seen.importance is not None
    assert trace.suffix_attention is not None and trace.suffix_importance is not None
    for slot, document in enumerate(order):
        assert np.array_equal(seen.shares[:, document], trace.suffix_attention[3, 5, queries, slot + 1])
        assert np.array_equal(seen.starts[:, document], trace.suffix_starts[3, 5, queries, slot])
        assert np.array_equal(seen.importance[:, document], trace.suffix_importance[3, 5, queries, slot])


def test_each_step_is_one_sentence_of_at_most_25_words() -> None:
    assert all(len(text.split()) <= 25 and text.count(".") == 1 for text, _ in STEPS.values())


def test_run_without_a_method_or_with_one_document_is_replaced() -> None:
    answers = {name: answer for name, answer in RUN.answer_records.items() if name != "vanilla"}
    alone = replace(RUN, form=replace(RUN.form, entries=RUN.form.entries[:1]))
    for run in (with_orders(RUN, (RUN.order, answers)), replace(alone, orders={(0,): RUN.orders[RUN.order]})):
        assert not can_explain(run)
        assert json.loads(why_json(run)) == {**json.loads(why_json(None)), "is_replaced": True}
    assert can_explain(RUN) and not json.loads(why_json(RUN))["is_replaced"]


@pytest.mark.parametrize("example", load_examples(), ids=lambda example: example.name)
def test_each_recorded_example_has_its_steps(example: FormExample) -> None:
    shown = recorded_of(example.form(DEFAULT_METHODS))
    record = json.loads(why_json(RUN, shown))
    assert record["question"] == shorten(shown.form.named_question, 120)
    assert [one["order"] for one in record["orders"]] == list(map(list, shown.orders))
    for method in METHODS:
        texts = ["".join(one[method]["tokens"]) for one in record["orders"]]
        answers = [answers.texts[method] for answers in shown.orders.values()]
        assert all(answer in text for text, answer in zip(texts, answers, strict=True))


def test_own_run_replaces_a_recorded_example() -> None:
    shown = recorded_of(load_examples()[1].form(DEFAULT_METHODS))
    own = replace(shown, cards=tuple(map(AnswerCard, shown.form.methods)), run=RUN)
    assert json.loads(why_json(RUN, own)) == json.loads(why_json(RUN)) | {"is_replaced": False}
    assert json.loads(why_json(RUN, own)) != json.loads(why_json(RUN, shown))
