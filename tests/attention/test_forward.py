"""Sequences decoded in one batch are bitwise identical to single ones; block layout of documents."""

from collections.abc import Sequence
from types import ModuleType

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from pine_engine import METHODS, Engine, TokenLayout
from pine_engine.attention.arithmetic import reduce_by_document
from pine_engine.attention.blocks import MIN_LENGTH_RATIO, BlockLayout, build_blocks
from pine_engine.attention.forward import batch_caches
from pine_engine.attention.state import SequenceState, strategy_on
from pine_engine.engine import passes
from pine_engine.methods.plan import build_plan
from tests.support.families import TinyLlama

LAYOUT = TokenLayout((5, 9, 3), ((11, 12, 13), (21, 22), (31, 32, 33, 34)), (51, 52), scores=(0.5, 2, 1))
ORDERS = [(0, 1, 2), (2, 0, 1), (1, 2, 0), (2, 1, 0)]
TOKENS = [[7, 8], [9, 4], [1, 2], [3, 6]]
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def engine(tiny_llama: TinyLlama) -> Engine:
    return Engine(tiny_llama())


@torch.inference_mode()
def prefill(engine: Engine, method: str, layouts: Sequence[TokenLayout]) -> list[SequenceState]:
    options = passes.PassOptions(engine.patched_models, reserved_tokens=6)
    return [passes.prefill(layout, METHODS[method], options)[0] for layout in layouts]


@torch.inference_mode()
def extend(rows: Sequence[SequenceState | None], step: int) -> Tensor:
    return passes.extend(rows, [tokens[step : step + 1] for tokens in TOKENS[: len(rows)]])


def test_longer_sequence_is_not_overwritten(engine: Engine) -> None:
    """The next tokens of two truncated sequences have the indices of the last ones of the third."""
    results: list[list[Tensor]] = []
    layouts = [LAYOUT.reorder(order) for order in ORDERS[:3]]
    alone, together = prefill(engine, "pine", layouts), prefill(engine, "pine", layouts)
    batch_caches(together)
    for rows in (alone, together):
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


def test_only_methods_with_the_same_kernels_share_a_batch(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pine_engine.attention.strategy.kernels_for", lambda *_: ModuleType("kernels"))
    options = passes.PassOptions(engine.patched_models)
    states = [options.state(build_plan(METHODS[name], LAYOUT)) for name in ("vanilla", "nia", "pcw")]
    vanilla, nia, pcw = (strategy_on(state, CPU).decode_strategy.batch_key for state in states)
    assert vanilla == nia != pcw


def test_prompts_of_different_lengths_are_not_batched(engine: Engine) -> None:
    longer = TokenLayout((5, 9, 3), ((11, 12, 13, 14), (21,), (31, 32, 33, 34)), (51, 52))
    first, other, second = prefill(engine, "pine", [LAYOUT, longer, LAYOUT.reorder((2, 0, 1))])
    batch_caches([first, other, second])
    assert first.cache.batch is second.cache.batch is not None and other.cache.batch is None


DOCUMENTS = st.lists(
    st.lists(st.integers(3, 9), min_size=1, max_size=14).map(tuple), min_size=1, max_size=7
).map(tuple)
LAYOUTS = st.builds(lambda length, documents: TokenLayout(tuple(range(length)), documents, (1, 2)),
                    st.integers(0, 4), DOCUMENTS)  # fmt: skip


def stored_ids(layout: TokenLayout, blocks: BlockLayout) -> torch.Tensor:
    return torch.tensor(layout.ids)[blocks.token_index].masked_fill(blocks.is_padding, 0)


@given(layout=LAYOUTS)
def test_each_slot_has_a_token_of_its_document(layout: TokenLayout) -> None:
    blocks = build_blocks(layout, CPU)
    stored = blocks.token_index[~blocks.is_padding].tolist()
    assert sorted(stored) == list(range(layout.prefix_length, layout.documents_end))
    for slot, index in enumerate(blocks.token_index.tolist()):
        document, offset = int(blocks.order[blocks.document[slot]]), int(blocks.offset[slot])
        assert bool(blocks.is_padding[slot]) == (offset >= len(layout.documents[document]))
        if blocks.is_padding[slot]:
            assert layout.prefix_length <= index < layout.documents_end
        else:
            assert index == layout.document_slice(document).start + offset
    assert blocks.lengths.tolist() == [len(layout.documents[d]) for d in blocks.order.tolist()]


@given(layout=LAYOUTS, data=st.data())
def test_storage_is_independent_of_the_input_order(layout: TokenLayout, data: st.DataObject) -> None:
    moved = layout.reorder(data.draw(st.permutations(range(layout.num_documents))))
    blocks, expected = build_blocks(moved, CPU), build_blocks(layout, CPU)
    assert torch.equal(stored_ids(moved, blocks), stored_ids(layout, expected))
    for name in ("document", "offset", "lengths", "is_padding"):
        assert torch.equal(getattr(blocks, name), getattr(expected, name))
    assert blocks.classes == expected.classes


@given(layout=LAYOUTS)
def test_length_classes_are_sorted_and_limit_padding(layout: TokenLayout) -> None:
    blocks = build_blocks(layout, CPU)
    documents = [layout.documents[d] for d in blocks.order.tolist()]
    end = 0
    for num_documents, length in blocks.classes:
        members = documents[end : end + num_documents]
        assert members == sorted(members)
        lengths = [len(document) for document in members]
        assert max(lengths) == length and min(lengths) >= MIN_LENGTH_RATIO * length
        end += num_documents
    assert end == layout.num_documents
    assert len(blocks.token_index) == sum(count * length for count, length in blocks.classes)


def test_length_classes_of_worked_example() -> None:
    documents = tuple(tuple(range(length)) for length in (100, 70, 69, 49))
    blocks = build_blocks(TokenLayout((), documents, (1,)), CPU)
    assert blocks.classes == ((2, 69), (2, 100))


@given(layout=LAYOUTS, seed=st.integers(0, 9))
def test_reductions_and_split_equal_a_loop_over_documents(layout: TokenLayout, seed: int) -> None:
    blocks = build_blocks(layout, CPU)
    generator = torch.Generator().manual_seed(seed)
    values = torch.rand(2, 3, layout.num_tokens, dtype=torch.float64, generator=generator)
    slots = values[..., blocks.token_index].masked_fill(blocks.is_padding, 0)
    sums, largest = reduce_by_document(slots, blocks, "sum"), reduce_by_document(slots, blocks, "max")
    parts = [document for part in blocks.split(slots[..., None]) for document in part.unbind(-3)]
    assert len(parts) == layout.num_documents
    for place, document in enumerate(blocks.order.tolist()):
        own = values[..., layout.document_slice(document)]
        torch.testing.assert_close(sums[..., place], own.sum(-1), rtol=0, atol=1e-13)
        assert torch.equal(largest[..., place], own.amax(-1))
        assert torch.equal(parts[place][..., : own.shape[-1], 0], own)


@given(layout=LAYOUTS)
def test_to_input_order_inverts_block_order(layout: TokenLayout) -> None:
    blocks, count = build_blocks(layout, CPU), layout.num_documents
    expected = torch.arange(count * count).view(count, 1, count)
    stored = expected[blocks.order][:, :, blocks.order]
    assert torch.equal(blocks.to_input_order(stored, 0, 2), expected)
