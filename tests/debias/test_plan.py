"""Plans of wrappers: orders, samples of a prior, content-free prompts, and the requests that are refused."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pine_engine.debias.plan import (
    MAX_ORDERS,
    content_free_prompts,
    document_orders,
    is_prior_example,
    plan_debias,
    prior_samples,
)
from pine_engine.debias.table import CONTENT_FREE, DEBIASERS
from pine_engine.errors import InputError
from pine_engine.prompts.prompt import Document, Piece, Prompt, segment_text
from pine_engine.prompts.request import LabeledRequest
from pine_engine.prompts.tasks import TASKS
from tests.support.tokenizers import letter_tokenizer


def request(num_documents: int = 3, **fields: Any) -> LabeledRequest:
    labels = list("ABCDEFGH"[:num_documents])
    values = {"question": "Why?", "documents": ["x"] * num_documents, "labels": labels}
    return LabeledRequest.model_validate(values | fields)


def test_full_orders_are_lexicographic_and_cyclic_orders_rotate() -> None:
    assert document_orders(3, "full") == [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]
    assert document_orders(4, "cyclic") == [(0, 1, 2, 3), (1, 2, 3, 0), (2, 3, 0, 1), (3, 0, 1, 2)]
    assert document_orders(3, None) == [(0, 1, 2)]


@given(count=st.integers(1, 6), samples=st.integers(1, 30), seed=st.integers(0, 4))
def test_sampled_orders_are_distinct_and_seeded(count: int, samples: int, seed: int) -> None:
    orders = document_orders(count, "sampled", samples=samples, seed=seed)
    assert len(orders) == len(set(orders)) == min(samples, math.factorial(count))
    assert all(sorted(order) == list(range(count)) for order in orders)
    assert orders == document_orders(count, "sampled", samples=samples, seed=seed)
    assert document_orders(8, "sampled", seed=seed) != document_orders(8, "sampled", seed=seed + 1)


@pytest.mark.parametrize(
    ("count", "options"),
    [(7, {}), (20, {}), (4, {"max_orders": 23}), (3, {"kind": "sampled", "samples": 0})],
)
def test_too_many_orders_and_no_sample_are_refused(count: int, options: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        document_orders(count, **options)
    assert len(document_orders(6)) == MAX_ORDERS == 720
    assert len(document_orders(7, max_orders=5040)) == 5040


@given(count=st.integers(1, 300), seed=st.integers(0, 3))
def test_prior_is_learned_from_a_twentieth_of_samples(count: int, seed: int) -> None:
    samples = prior_samples(count, seed)
    assert len(samples) == max(1, count * 5 // 100)
    assert samples <= set(range(count)) and samples == prior_samples(count, seed)


def test_prior_examples_are_selected_by_their_ids() -> None:
    selected = [number for number in range(5_000) if is_prior_example(f"row {number}")]
    assert 200 < len(selected) < 300
    assert selected[:5] == [72, 164, 165, 180, 207]


def build(texts: Sequence[str]) -> Prompt:
    documents = [Document(text, title) for text, title in zip(texts, ("Sea", "", "Sky"), strict=True)]
    return TASKS["math_reasoning"].prompt(
        letter_tokenizer(chat_template=None), question="Why?", documents=documents, instruction="Say."
    )


def test_content_free_prompts_keep_titles_and_everything_else() -> None:
    prompts = content_free_prompts(build, 3)
    assert [[segment_text(document) for document in prompt.documents] for prompt in prompts] == [
        ["Sea N/A ", "N/A ", "Sky N/A "],
        ["Sea  ", " ", "Sky  "],
        ["Sea [MASK] ", "[MASK] ", "Sky [MASK] "],
    ]
    assert CONTENT_FREE == ("N/A", "", "[MASK]")
    whole = build(["Moon.", "Hot tea.", "Blue."])
    assert {(prompt.prefix, prompt.suffix) for prompt in prompts} == {(whole.prefix, whole.suffix)}


def test_content_free_prompts_keep_markup() -> None:
    def marked(texts: Sequence[str]) -> Prompt:
        return Prompt((), ((Piece("<|im_start|>", True), Piece(texts[0]), Piece("<|im_end|>", True)),), ())

    for content, prompt in zip(CONTENT_FREE, content_free_prompts(marked, 1), strict=True):
        assert [piece.text for piece in prompt.documents[0]] == ["<|im_start|>", content, "<|im_end|>"]
        assert [piece.is_markup for piece in prompt.documents[0]] == [True, False, True]


def test_document_of_content_alone_has_no_content_free_prompt() -> None:
    def bare(texts: Sequence[str]) -> Prompt:
        return Prompt((), tuple((Piece(text),) for text in texts), (Piece("?"),))

    with pytest.raises(InputError):
        content_free_prompts(bare, 2)
    with pytest.raises(InputError):
        content_free_prompts(lambda _: bare(["one", "two"]), 2)


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ({}, {"wrapper": "magic"}),
        ({}, {"wrapper": "pride", "base": "magic"}),
        ({"labels": []}, {"wrapper": "permutation_full"}),
        ({"labels": []}, {"wrapper": "calibration_labels"}),
        ({"labels": ["A", "B"]}, {"wrapper": "pride"}),
        ({}, {"wrapper": "pride", "majority": True}),
        ({}, {"wrapper": "calibration_every", "majority": True}),
        ({"num_documents": 8}, {"wrapper": "permutation_full"}),
    ],
)
def test_request_that_does_not_fit_is_refused(fields: dict[str, Any], options: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        plan_debias([request(**fields)], **options)


def test_pride_needs_equal_labels_and_a_plan_needs_a_request() -> None:
    others = [request(), request(labels=["1", "2", "3"])]
    with pytest.raises(InputError):
        plan_debias(others, wrapper="pride")
    assert plan_debias(others, wrapper="permutation_cyclic").num_prompts == 6
    with pytest.raises(InputError):
        plan_debias([], wrapper="pride")


def test_plan_limits_answers_where_one_is_generated() -> None:
    limits = {
        name: plan_debias([request()], wrapper=name, max_new_tokens=7).max_new_tokens for name in DEBIASERS
    }
    assert [name for name, limit in limits.items() if limit] == ["calibration_first", "calibration_every"]
    assert plan_debias([request()], wrapper="permutation_full", majority=True).max_new_tokens == 64
    assert plan_debias([request(labels=[])], wrapper="calibration_first").num_prompts == 4
