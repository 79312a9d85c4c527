"""Benchmark `facts`: seeded questions with one correct value, and their strict score."""

from itertools import islice

import pytest

from pine_engine import InputError
from pine_engine.data.facts import KINDS, generate_facts
from pine_engine.data.registry import PUBLIC_SETS
from pine_engine.evaluation.examples import Example


@pytest.mark.parametrize("num_documents", [2, 3, 20])
def test_facts_name_their_value_in_one_document(num_documents: int) -> None:
    rows = [Example.model_validate(row) for row in islice(generate_facts(num_documents, seed=1), 60)]
    assert {row.meta["kind"] for row in rows} == {kind["name"] for kind in KINDS}
    for row in rows:
        texts = [document.text for document in row.documents]
        (answer,) = row.answers
        assert [index for index, text in enumerate(texts) if answer in text] == [row.gold_index]
        assert len(row.rejected_answers) == len(texts) - 1 == len(set(texts)) - 1
        assert [row.score(text, row.answers) for text in texts] == [
            float(index == row.gold_index) for index in range(len(texts))
        ]


def test_facts_are_equal_for_equal_seeds() -> None:
    first, second = (list(islice(generate_facts(3, seed=5), count)) for count in (12, 30))
    assert first == second[:12]
    assert first != list(islice(generate_facts(3, seed=6), 12))
    assert len(list(PUBLIC_SETS["facts-3"].convert(()))) == PUBLIC_SETS["facts-3"].records


def test_answer_with_rejected_value_scores_zero() -> None:
    row = Example.model_validate(next(generate_facts(3)))
    (accepted,), rejected = row.answers, row.rejected_answers[0]
    assert row.score(f"It is {accepted}.", row.answers) == 1
    assert row.score(f"It is {accepted}, not {rejected}.", row.answers) == 0
    assert row.score(f"It is {accepted}, un{rejected}like.", row.answers) == 1
    assert row.score(f"It is {accepted}.", ()) is None


@pytest.mark.parametrize("num_documents", [1, 21])
def test_facts_reject_number_of_documents(num_documents: int) -> None:
    with pytest.raises(InputError) as caught:
        next(generate_facts(num_documents))
    assert caught.value.field == "documents"
