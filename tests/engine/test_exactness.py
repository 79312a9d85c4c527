"""On the embedded model, to the last bit: the order of documents changes nothing where that is promised."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from pine_engine.engine.engine import Engine
from pine_engine.engine.orders import sample_orders
from pine_engine.methods.table import METHODS
from pine_engine.models.load import load
from pine_engine.prompts.layout import TokenLayout
from pine_engine.prompts.prompt import Document
from pine_engine.prompts.tasks import get_task

NEW_TOKENS = 3

PROMISING = [method.name for method in METHODS.values() if method.is_order_invariant]
PUBLISHED = [name for name in PROMISING if METHODS[name].role == "method"]
CONTROLS = [method.name for method in METHODS.values() if not method.is_order_invariant]

FACTS = [
    "The lighthouse at Cape Marrow was built in 1871 after three grain ships were lost on its shoals, "
    "and the lamp was first lit by the keeper's daughter.",
    "Copper turns green.",
    "The ferry to Tarn Island leaves at seven in the morning, except on Sundays.",
    "Most bees live alone and make no honey.",
    "The mill was sold twice.",
    "The river rises by two metres in spring, so that the lower road is closed until the middle of May.",
    "Ada Whitlock painted the town hall from her window every month.",
    "The bakery on Elm Street opens before sunrise.",
    "Nobody knows who carved the two stone foxes on either side of the church door.",
    "Salt lowers the freezing point of water.",
    "A school for sailors stood on the hill until the fire of 1904.",
    "The clock runs four minutes fast.",
]
COUNTS = (2, 12)
"""Of documents that are tried in one other order; docs/exactness.md names the command for many more."""


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def engine(request: pytest.FixtureRequest, embedded: Engine) -> Engine:
    return embedded if request.param == "float32" else Engine.load(dtype=request.param)


@pytest.fixture(scope="module")
def shallow(engine: Engine) -> Engine:
    """The first six of the 30 layers, for prompts of special shapes: what moves a bit moves it there."""
    model = load(None, dtype=engine.dtype).model
    model.model.layers = model.model.layers[:6]
    model.config.num_hidden_layers = 6
    return Engine(model, engine.tokenizer)


def layout_of(engine: Engine, facts: list[str]) -> TokenLayout:
    return engine.tokenize(
        get_task("retrieval_qa").prompt(
            engine.tokenizer,
            question="When does the ferry leave?",
            documents=[Document(fact) for fact in facts],
        )
    )


def logits_in(
    engine: Engine, layout: TokenLayout, methods: list[str], new_tokens: int
) -> dict[str, torch.Tensor]:
    """All logits of the suffix, and those of decoding that many tokens, by method."""
    result = engine.run(
        layout, methods=methods, max_new_tokens=new_tokens + 1, return_logits=True, stop_at_eos=False
    )
    for logits in result.logits.values():
        assert len(logits) == layout.suffix_length + new_tokens
    return result.logits


def assert_no_bit_changes(
    engine: Engine, layout: TokenLayout, methods: list[str], shuffles: int, new_tokens: int
) -> None:
    first, *others = sample_orders(layout.num_documents, shuffles, seed=layout.num_documents)
    expected = logits_in(engine, layout.reorder(first), methods, new_tokens)
    assert len(others) == shuffles
    for order in others:
        moved = logits_in(engine, layout.reorder(order), methods, new_tokens)
        for method, logits in moved.items():
            assert torch.equal(logits, expected[method]), f"{method} changed in order {order}"


@contextmanager
def without_keys(engine: Engine) -> Iterator[None]:
    """The model with all keys zero for a while, so that every attention score is 0."""

    def zero(_: Any, __: Any, output: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(output)

    hooks = [
        module.register_forward_hook(zero)
        for name, module in engine.patched_models[0].network.named_modules()
        if name.endswith("k_proj")
    ]
    assert len(hooks) == engine.num_layers
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def test_documents_are_of_unequal_length(engine: Engine) -> None:
    lengths = layout_of(engine, FACTS).lengths
    assert len(set(lengths.tolist())) >= 8
    assert lengths.min() <= 10 and lengths.max() >= 35


def test_the_promise_is_that_of_the_specification() -> None:
    assert {"pine", "pine_reversed", "pcw", "sp"} == set(PUBLISHED)


@pytest.mark.parametrize("count", COUNTS)
def test_published_methods_do_not_change_by_one_bit(engine: Engine, count: int) -> None:
    assert_no_bit_changes(engine, layout_of(engine, FACTS[:count]), PUBLISHED, 1, NEW_TOKENS)


def test_variants_do_not_change_by_one_bit(shallow: Engine) -> None:
    variants = [name for name in PROMISING if name not in PUBLISHED]
    assert_no_bit_changes(shallow, layout_of(shallow, FACTS[:4]), variants, 1, 2)


def test_duplicate_documents_do_not_change_one_bit(shallow: Engine) -> None:
    facts = [FACTS[1], FACTS[2], FACTS[1], FACTS[4], FACTS[1]]
    assert_no_bit_changes(shallow, layout_of(shallow, facts), PUBLISHED, 1, 2)


def test_documents_of_one_token_and_short_prompts_do_not_change_one_bit(shallow: Engine) -> None:
    for layout in (
        TokenLayout((1, 50, 60), ((70,), (80,), (90, 91, 92, 93, 94, 95, 96), (70,)), (10, 11)),
        TokenLayout((1,), ((70,), (80, 81), (90,)), (10, 11)),
    ):
        assert_no_bit_changes(shallow, layout, PUBLISHED, 1, 2)


def test_fifty_documents_do_not_change_one_bit(shallow: Engine) -> None:
    documents = tuple(tuple(range(100 + 7 * d, 103 + 7 * d + d % 3)) for d in range(50))
    assert_no_bit_changes(shallow, TokenLayout((1, 2, 3), documents, (10, 11, 12)), PUBLISHED, 1, 1)


def test_exact_ties_of_importance_do_not_change_one_bit(shallow: Engine) -> None:
    """With keys of zero every score is 0, so that documents of equal length are equally important."""
    layout = TokenLayout((1, 50), ((70, 71, 72), (80, 81, 82), (90, 91, 92), (60, 61, 62)), (10, 11, 12))
    with without_keys(shallow):
        trace = shallow.run(layout, methods=["pine"], max_new_tokens=1, trace=True).traces["pine"]
        importance = trace.suffix_importance
        assert importance is not None and (importance == importance[..., :1]).all()
        assert_no_bit_changes(shallow, layout, PUBLISHED, 1, 2)


def test_controls_change(shallow: Engine) -> None:
    count = 5
    layout = layout_of(shallow, FACTS[:count])
    first, second = sample_orders(count, 1, seed=1)
    before = logits_in(shallow, layout.reorder(first), CONTROLS, 0)
    after = logits_in(shallow, layout.reorder(second), CONTROLS, 0)
    for method in CONTROLS:
        assert (after[method] - before[method]).abs().max() > 0.01, method
