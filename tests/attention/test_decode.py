"""Sequences that are decoded in one batch are bitwise identical to those decoded alone."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from pine_engine import METHODS, Engine, TokenLayout
from pine_engine.attention.decode import batch_caches
from pine_engine.attention.state import SequenceState
from pine_engine.engine import passes
from tests.support.families import TinyLlama

LAYOUT = TokenLayout((5, 9, 3), ((11, 12, 13), (21, 22), (31, 32, 33, 34)), (51, 52))
ORDERS = [(0, 1, 2), (2, 0, 1), (1, 2, 0), (2, 1, 0)]
TOKENS = [[7, 8], [9, 4], [1, 2], [3, 6]]


@pytest.fixture(scope="module")
def engine(tiny_llama: TinyLlama) -> Engine:
    return Engine(tiny_llama())


@torch.inference_mode()
def prefill(engine: Engine, method: str, layouts: Sequence[TokenLayout]) -> list[SequenceState]:
    return [
        passes.prefill(engine.patched_models, layout, METHODS[method], reserved_tokens=6, logits_to_keep=1)[0]
        for layout in layouts
    ]


def prefill_twice(
    engine: Engine, method: str, count: int = 4
) -> tuple[list[SequenceState], list[SequenceState]]:
    """Return sequences with separate caches, and the same sequences with batched caches."""
    layouts = [LAYOUT.reorder(order) for order in ORDERS[:count]]
    alone, together = prefill(engine, method, layouts), prefill(engine, method, layouts)
    batch_caches(together)
    return alone, together


@torch.inference_mode()
def extend(rows: Sequence[SequenceState | None], step: int) -> Tensor:
    return passes.extend(rows, [tokens[step : step + 1] for tokens in TOKENS[: len(rows)]])


@pytest.mark.parametrize("method", METHODS)
def test_batched_sequences_equal_single_ones(engine: Engine, method: str) -> None:
    alone, together = prefill_twice(engine, method)
    assert len({id(row.cache.batch) for row in together}) == 1 and together[0].cache.batch
    for step in range(2):
        assert torch.equal(extend(together, step), extend(alone, step))
    assert [row.num_cached_tokens() for row in together] == [row.num_cached_tokens() for row in alone]


def test_longer_sequence_is_not_overwritten(engine: Engine) -> None:
    """The next tokens of two truncated sequences have the indices of the last ones of the third."""
    results: list[list[Tensor]] = []
    for rows in prefill_twice(engine, "pine", 3):
        extend(rows, 0)
        for row in rows[:2]:
            row.cache.truncate(row.cache.length - 1)
        results.append([extend([*rows[:2], None], 1)[:2], extend([None, None, rows[2]], 1)[2]])
    assert all(map(torch.equal, *results))


def test_methods_with_equal_storage_share_a_batch(engine: Engine) -> None:
    rows = [prefill(engine, method, [LAYOUT])[0] for method in METHODS]
    batch_caches(rows)
    stacked = {row.state.plan.method.name: row.cache.batch for row in rows}
    assert stacked["vanilla"] is stacked["nia"] is stacked["pcw"] is not None
    assert stacked["pine"] is None


def test_prompts_of_different_lengths_are_not_batched(engine: Engine) -> None:
    longer = TokenLayout((5, 9, 3), ((11, 12, 13, 14), (21,), (31, 32, 33, 34)), (51, 52))
    first, other, second = prefill(engine, "pine", [LAYOUT, longer, LAYOUT.reorder((2, 0, 1))])
    batch_caches([first, other, second])
    assert first.cache.batch is second.cache.batch is not None and other.cache.batch is None
