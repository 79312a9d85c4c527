"""Percentages of the base rate: from records of all orders to the file that the page reads."""

from itertools import islice, permutations

import pytest

from pine_engine.lab.data.facts import generate_facts
from pine_engine.lab.evaluation.document_orders import DocumentOrder
from pine_engine.lab.evaluation.record import Record, blank_record
from pine_engine.prompts.examples import Example
from tools.base_rate import is_sorted, method_rate
from tools.set_rates import complete_sets, set_rate
from viz.page.answers.base_rate import base_rate

EACH = [Example.model_validate(row) for row in islice(generate_facts(3, each=True), 6)]
FACTS = [Example.model_validate(row) for row in islice(generate_facts(3), 4)]


def records_of(example: Example, texts: list[str], method: str = "vanilla") -> list[Record]:
    orders = [DocumentOrder(str(order), (0, 1, 2), order) for order in permutations(range(3))]
    return [
        blank_record(example, method, order).model_copy(
            update={"parsed": text, "score": example.score(text, example.answers)}
        )
        for order, text in zip(orders, texts, strict=True)
    ]


def test_percentages_count_answers_and_questions() -> None:
    correct = [example.answers[0] for example in FACTS]
    both = f"{correct[3]} or {FACTS[3].rejected_answers[0]}"
    answers = [[correct[0]] * 6, [correct[1]] * 5 + ["nothing"], ["nothing"] * 6, [both] * 6]
    questions = [records_of(example, texts) for example, texts in zip(FACTS, answers, strict=True)]
    rate = method_rate("vanilla", questions)
    assert rate["correct"] == pytest.approx(100 * 11 / 24, abs=0.05)
    assert (rate["changes"], rate["always"], rate["never"]) == (25.0, 25.0, 50.0)


def test_one_order_of_a_question_is_sorted() -> None:
    for example in FACTS:
        (record,) = [record for record in records_of(example, ["x"] * 6) if is_sorted(record, example)]
        texts = [example.documents[index].text for index in record.permutation]
        assert texts == sorted(texts)


def test_sets_count_questions_about_each_document() -> None:
    """PINE is right, then names the first document; vanilla is wrong once, then names several documents."""
    right, wrong = ([example.answers[0] for example in one] for one in (EACH[:3], EACH[3:]))
    answers = {
        "pine": [*([text] * 6 for text in right), *[[f"It is {wrong[0]}."] * 6] * 3],
        "vanilla": [
            [right[1], *[right[0]] * 5],
            *([text] * 6 for text in right[1:]),
            *[[" ".join(wrong)] * 6] * 3,
        ],
    }
    records = [
        record
        for method, texts in answers.items()
        for example, one in zip(EACH, texts, strict=True)
        for record in records_of(example, one, method)
    ]
    examples = {example.id: example for example in EACH}
    sets = complete_sets(EACH, records)
    rates = {method: set_rate(method, sets, examples) for method in answers}
    assert [(rate["same"][0], rate["correct"][0]) for rate in rates.values()] == [(50, 50), (0, 0)]
    assert len(complete_sets(EACH, records[:-6])) == 1, "the second set lacks a question"


def test_recorded_base_rate_is_of_enough_questions() -> None:
    rate = base_rate()
    assert rate["questions"] >= 100
    assert [row["changes"] for row in rate["methods"] if row["method"] in ("pcw", "pine")] == [0, 0]
    assert all(row["always"] <= row["correct"] <= 100.1 - row["never"] for row in rate["methods"])
