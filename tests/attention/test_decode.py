"""Rows that are extended as one get the bits that each gets by itself."""

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from pine_engine.attention.decode import batch_caches
from pine_engine.attention.state import SequenceState
from pine_engine.engine import passes
from pine_engine.engine.engine import Engine
from pine_engine.methods.table import METHODS
from pine_engine.prompts.layout import TokenLayout

LAYOUT = TokenLayout((5, 9, 3), ((11, 12, 13), (21, 22), (31, 32, 33, 34)), (51, 52))
ORDERS = [(0, 1, 2), (2, 0, 1), (1, 2, 0), (2, 1, 0)]
TOKENS = [[7, 8], [9, 4], [1, 2], [3, 6]]


@pytest.fixture(scope="module")
def engine(tiny_llama: Callable[..., LlamaForCausalLM]) -> Engine:
    return Engine(tiny_llama())


def read(engine: Engine, method: str, orders: Sequence[Sequence[int]] = ORDERS) -> list[SequenceState]:
    with torch.inference_mode():
        return [
            passes.prefill(
                engine.patched_models, LAYOUT.reorder(order), METHODS[method], room=6, logits_to_keep=1
            )[0]
            for order in orders
        ]


@torch.inference_mode()
def extend(rows: Sequence[SequenceState | None], step: int) -> Tensor:
    return passes.extend(rows, [tokens[step : step + 1] for tokens in TOKENS[: len(rows)]])


@pytest.mark.parametrize("method", METHODS)
def test_rows_together_get_the_bits_of_each_alone(engine: Engine, method: str) -> None:
    alone, together = read(engine, method), read(engine, method)
    batch_caches(together)
    assert len({id(row.cache.stack) for row in together}) == 1 and together[0].cache.stack
    for step in range(2):
        assert torch.equal(extend(together, step), extend(alone, step))
    assert [row.num_read() for row in together] == [row.num_read() for row in alone]


@pytest.mark.parametrize("method", ["vanilla", "pcw", "pine", "pine_input_order"])
def test_a_row_that_has_ended_changes_nothing(engine: Engine, method: str) -> None:
    alone, together = read(engine, method), read(engine, method)
    batch_caches(together)
    steps: list[list[Tensor]] = [[], []]
    for found, rows in zip(steps, (alone, together), strict=True):
        extend(rows, 0)
        found.append(extend([None, rows[1], None, rows[3]], 1)[[1, 3]])
        found.append(extend([rows[0], None, rows[2], None], 1)[[0, 2]])  # which had not ended after all
    for expected, found in zip(*steps, strict=True):
        assert torch.equal(expected, found)


def test_methods_that_store_documents_alike_share_a_step(engine: Engine) -> None:
    rows = [read(engine, method, ORDERS[:1])[0] for method in METHODS]
    batch_caches(rows)
    stacked = {row.state.plan.method.name: row.cache.stack for row in rows}
    assert stacked["vanilla"] is stacked["nia"] is stacked["pcw"] is not None
    assert stacked["pine"] is None


def test_a_row_that_has_read_more_is_not_written_over(engine: Engine) -> None:
    """Where two of three rows go back, what they write would stand in the rows of the third."""
    alone, together = (read(engine, "pine", ORDERS[:3]) for _ in range(2))
    batch_caches(together)
    for rows in (alone, together):
        extend(rows, 0)
        for row in rows[:2]:
            row.cache.truncate(row.cache.length - 1)
    expected, found = (extend([*rows[:2], None], 1)[:2] for rows in (alone, together))
    assert torch.equal(expected, found)
    assert torch.equal(*(extend([None, None, rows[2]], 1)[2] for rows in (alone, together)))


def test_prompts_of_other_shapes_are_not_put_together(engine: Engine) -> None:
    first, second = read(engine, "pine", ORDERS[:2])
    other = TokenLayout((5, 9, 3), ((11, 12, 13, 14), (21,), (31, 32, 33, 34)), (51, 52))
    with torch.inference_mode():
        third = passes.prefill(engine.patched_models, other, METHODS["pine"], room=6, logits_to_keep=1)[0]
    rows = [first, third, second]
    batch_caches(rows)
    assert first.cache.stack is second.cache.stack is not None and third.cache.stack is None
