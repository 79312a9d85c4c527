"""Plans of wrappers: orders, samples of a prior, content-free prompts, and invalid requests."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pine_engine import DEBIASERS, Document, InputError, LabeledRequest, plan_debias
from pine_engine.debias.plan import content_free_prompts, document_orders, is_prior_example, prior_samples
from pine_engine.prompts.prompt import segment_text
from tests.support.tokenizers import letter_tokenizer


def request(num_documents: int = 3, **fields: Any) -> LabeledRequest:
    labels = list("ABCDEFGH"[:num_documents])
    values = {"question": "Why?", "documents": ["x"] * num_documents, "labels": labels}
    return LabeledRequest.model_validate(values | fields)


def test_full_orders_are_lexicographic_and_cyclic_orders_rotate() -> None:
    assert document_orders(3, "full") == [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]
    assert document_orders(4, "cyclic") == [(0, 1, 2, 3), (1, 2, 3, 0), (2, 3, 0, 1), (3, 0, 1, 2)]
    assert document_orders(3, None) == [(0, 1, 2)]
    assert (len(document_orders(6)), len(document_orders(7, max_orders=5040))) == (720, 5040)


@given(count=st.integers(1, 6), samples=st.integers(1, 30), seed=st.integers(0, 4))
def test_sampled_orders_are_distinct_and_seeded(count: int, samples: int, seed: int) -> None:
    orders = document_orders(count, "sampled", samples=samples, seed=seed)
    assert len(orders) == len(set(orders)) == min(samples, math.factorial(count))
    assert all(sorted(order) == list(range(count)) for order in orders)
    assert orders == document_orders(count, "sampled", samples=samples, seed=seed)
    assert document_orders(8, "sampled", seed=seed) != document_orders(8, "sampled", seed=seed + 1)


@given(count=st.integers(1, 300), seed=st.integers(0, 3))
def test_prior_samples_are_a_seeded_twentieth(count: int, seed: int) -> None:
    samples = prior_samples(count, seed)
    assert len(samples) == max(1, count * 5 // 100)
    assert samples <= set(range(count)) and samples == prior_samples(count, seed)


def test_prior_examples_are_selected_by_their_ids() -> None:
    selected = [number for number in range(5_000) if is_prior_example(f"row {number}")]
    assert len(selected) == 227 and selected[:5] == [72, 164, 165, 180, 207]


def test_content_free_prompts_keep_titles_and_everything_else() -> None:
    engine = SimpleNamespace(tokenizer=letter_tokenizer(chat_template=None))
    documents = [Document("Moon.", "Sea"), Document("Hot tea."), Document("Blue.", "Sky")]
    titled = request(documents=documents, task="math_reasoning")
    prompts = content_free_prompts(engine, titled)
    assert [[segment_text(document) for document in prompt.documents] for prompt in prompts] == [
        ["Sea N/A ", "N/A ", "Sky N/A "],
        ["Sea  ", " ", "Sky  "],
        ["Sea [MASK] ", "[MASK] ", "Sky [MASK] "],
    ]
    whole = titled.prompt(engine)
    assert {(prompt.prefix, prompt.suffix) for prompt in prompts} == {(whole.prefix, whole.suffix)}


@pytest.mark.parametrize(
    ("field", "requests", "options"),
    [
        ("wrapper", [request()], {"wrapper": "magic"}),
        ("method", [request()], {"wrapper": "pride", "base": "magic"}),
        ("labels", [request(labels=[])], {"wrapper": "permutation_full"}),
        ("labels", [request(labels=[])], {"wrapper": "calibration_labels"}),
        ("labels", [request(labels=["A", "B"])], {"wrapper": "pride"}),
        ("labels", [request(), request(labels=["1", "2", "3"])], {"wrapper": "pride"}),
        ("majority", [request()], {"wrapper": "pride", "majority": True}),
        ("majority", [request()], {"wrapper": "calibration_every", "majority": True}),
        ("max_orders", [request(8)], {"wrapper": "permutation_full"}),
        ("max_orders", [request(4)], {"wrapper": "permutation_full", "max_orders": 23}),
        ("samples", [request()], {"wrapper": "permutation_sampled", "samples": 0}),
        ("requests", [], {"wrapper": "pride"}),
    ],
)
def test_plan_invalid_argument_raises_with_field(
    field: str, requests: list[LabeledRequest], options: dict[str, Any]
) -> None:
    with pytest.raises(InputError) as raised:
        plan_debias(requests, **options)
    assert raised.value.field == field


@pytest.mark.parametrize("wrapper", DEBIASERS)
def test_plan_counts_prompts_and_limits_generated_answers(wrapper: str) -> None:
    plan = plan_debias([request()] * 3, wrapper=wrapper, samples=4, max_new_tokens=7)
    counts = {"permutation_full": 18, "permutation_cyclic": 9, "pride": 3 + 2}
    assert plan.num_prompts == counts.get(wrapper, 12)
    assert plan.max_new_tokens == (7 if wrapper in ("calibration_first", "calibration_every") else 0)
    if DEBIASERS[wrapper].votes:
        assert plan_debias([request()], wrapper=wrapper, majority=True).max_new_tokens == 64
