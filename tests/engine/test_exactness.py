"""On the embedded model, order-invariant methods are bitwise identical in any document order."""

from typing import Any

import pytest
import torch

from pine_engine import METHODS, TASKS, Engine, TokenLayout, sample_orders
from pine_engine.models.load import load

PUBLISHED = ["pine", "pine_reversed", "pcw", "sp"]
VARIANTS = [name for name, row in METHODS.items() if row.is_order_invariant and name not in PUBLISHED]
CONTROLS = [name for name, row in METHODS.items() if not row.is_order_invariant]

FACTS = [
    "The lighthouse at Cape Marrow was built in 1871 after three grain ships were lost on its shoals, "
    "and the lamp was first lit by the keeper's daughter.",
    "Copper turns green.",
    "The ferry to Tarn Island leaves at seven in the morning, except on Sundays.",
    "Most bees live alone and make no honey.",
    "The mill was sold twice.",
    "The river rises by two metres in spring, so that the lower road is closed until the middle of May.",
]
"""Documents of 4 to 35 tokens."""


@pytest.fixture(scope="module", params=["float32", pytest.param("bfloat16", marks=pytest.mark.slow)])
def engine(request: pytest.FixtureRequest, embedded: Engine) -> Engine:
    return embedded if request.param == "float32" else Engine.load(dtype=request.param)


@pytest.fixture(scope="module")
def shallow(engine: Engine) -> Engine:
    """Return the first six of the 30 layers, for prompts of special shapes."""
    model = load(None, dtype=engine.dtype).model
    model.model.layers = model.model.layers[:6]
    model.config.num_hidden_layers = 6
    return Engine(model, engine.tokenizer)


def layout_of(engine: Engine, facts: list[str]) -> TokenLayout:
    task, question = TASKS["retrieval_qa"], "When does the ferry leave?"
    return engine.tokenize(task.prompt(engine.tokenizer, question=question, documents=facts))


def logits_in(engine: Engine, layout: TokenLayout, methods: list[str], steps: int) -> dict[str, torch.Tensor]:
    options: dict[str, Any] = {"max_new_tokens": steps + 1, "return_logits": True, "stop_at_eos": False}
    return engine.run(layout, methods=methods, **options).logits


def assert_identical(engine: Engine, layout: TokenLayout, methods: list[str], steps: int = 2) -> None:
    order = sample_orders(layout.num_documents, 1, seed=layout.num_documents)[1]
    expected = logits_in(engine, layout, [*methods, "vanilla"], steps)
    moved = logits_in(engine, layout.reorder(order), [*methods, "vanilla"], steps)
    assert (moved.pop("vanilla") - expected["vanilla"]).abs().max() > 0.01
    for method, logits in moved.items():
        assert len(logits) == layout.suffix_length + steps
        assert torch.equal(logits, expected[method]), method


@pytest.mark.parametrize("count", [2, pytest.param(len(FACTS), marks=pytest.mark.slow)])
def test_published_methods_are_identical_in_all_layers(engine: Engine, count: int) -> None:
    assert_identical(engine, layout_of(engine, FACTS[:count]), PUBLISHED, 3)


@pytest.mark.slow
def test_documents_of_different_lengths_are_identical(shallow: Engine) -> None:
    layout = layout_of(shallow, FACTS)
    assert layout.lengths.min() <= 10 and layout.lengths.max() >= 35
    assert_identical(shallow, layout, PUBLISHED)
    assert_identical(shallow, layout_of(shallow, FACTS[:4]), VARIANTS)


@pytest.mark.slow
def test_logits_of_controls_change(shallow: Engine) -> None:
    layout = layout_of(shallow, FACTS[:5])
    before = logits_in(shallow, layout, CONTROLS, 0)
    after = logits_in(shallow, layout.reorder([1, 0, 4, 2, 3]), CONTROLS, 0)
    for method in CONTROLS:
        assert (after[method] - before[method]).abs().max() > 0.01, method
