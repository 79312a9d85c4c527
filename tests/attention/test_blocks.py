"""Block storage: every document token once, and nothing in it knows the order the documents came in."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pine_engine.attention.blocks import SHORTEST_IN_CLASS, BlockLayout, build_blocks
from pine_engine.prompts.layout import TokenLayout

CPU = torch.device("cpu")

DOCUMENTS = st.lists(
    st.lists(st.integers(3, 9), min_size=1, max_size=14).map(tuple), min_size=1, max_size=7
).map(tuple)


@st.composite
def layouts(draw: st.DrawFn) -> TokenLayout:
    prefix = tuple(range(draw(st.integers(0, 4))))
    return TokenLayout(prefix, draw(DOCUMENTS), (1, 2))


@st.composite
def layouts_with_order(draw: st.DrawFn) -> tuple[TokenLayout, list[int]]:
    layout = draw(layouts())
    return layout, draw(st.permutations(range(layout.num_documents)))


def stored_ids(layout: TokenLayout, blocks: BlockLayout) -> torch.Tensor:
    """The token ids in the order of the slots, 0 where there is padding."""
    ids = torch.tensor(layout.ids)[blocks.token_index]
    return ids.masked_fill(blocks.is_padding, 0)


@given(layout=layouts())
def test_every_document_token_has_exactly_one_slot(layout: TokenLayout) -> None:
    blocks = build_blocks(layout, CPU)
    stored = blocks.token_index[~blocks.is_padding].tolist()
    assert sorted(stored) == list(range(layout.prefix_length, layout.documents_end))


@given(layout=layouts())
def test_slots_say_which_document_and_offset_they_hold(layout: TokenLayout) -> None:
    blocks = build_blocks(layout, CPU)
    for slot, index in enumerate(blocks.token_index.tolist()):
        document = int(blocks.order[blocks.document[slot]])
        offset = int(blocks.offset[slot])
        length = len(layout.documents[document])
        assert bool(blocks.is_padding[slot]) == (offset >= length)
        if offset < length:
            assert index == layout.document_slice(document).start + offset
        else:
            assert layout.prefix_length <= index < layout.documents_end
    assert blocks.lengths.tolist() == [len(layout.documents[d]) for d in blocks.order.tolist()]
    assert len(blocks.document) == len(blocks.offset) == len(blocks.is_padding)


@given(case=layouts_with_order())
def test_storage_does_not_know_the_input_order(case: tuple[TokenLayout, list[int]]) -> None:
    layout, order = case
    moved = layout.reorder(order)
    one, other = build_blocks(layout, CPU), build_blocks(moved, CPU)
    assert torch.equal(stored_ids(layout, one), stored_ids(moved, other))
    for left, right in (
        (one.document, other.document),
        (one.offset, other.offset),
        (one.lengths, other.lengths),
    ):
        assert torch.equal(left, right)
    assert torch.equal(one.is_padding, other.is_padding)
    assert one.classes == other.classes


@given(case=layouts_with_order())
def test_block_order_is_sorted_by_length_class_and_then_by_token_ids(
    case: tuple[TokenLayout, list[int]],
) -> None:
    layout, _ = case
    blocks = build_blocks(layout, CPU)
    in_order = [layout.documents[d] for d in blocks.order.tolist()]
    for group in blocks.classes:
        assert in_order[group.first : group.last] == sorted(in_order[group.first : group.last])


@given(layout=layouts())
def test_length_classes_bound_the_waste(layout: TokenLayout) -> None:
    blocks = build_blocks(layout, CPU)
    lengths = blocks.lengths.tolist()
    end = 0
    for group in blocks.classes:
        assert group.first == end
        assert group.size == (group.last - group.first) * group.length
        members = lengths[group.first : group.last]
        assert max(members) == group.length
        assert min(members) >= SHORTEST_IN_CLASS * group.length
        end = group.last
    assert end == layout.num_documents
    assert len(blocks.token_index) == sum(group.size for group in blocks.classes)
    assert len(blocks.token_index) <= sum(lengths) / SHORTEST_IN_CLASS


def test_documents_of_like_length_share_a_class_and_others_do_not() -> None:
    documents = tuple(tuple(range(length)) for length in (100, 70, 69, 49))
    blocks = build_blocks(TokenLayout((), documents, (1,)), CPU)
    assert [(group.first, group.last, group.length) for group in blocks.classes] == [(0, 2, 69), (2, 4, 100)]


@given(layout=layouts(), seed=st.integers(0, 9))
def test_sums_by_document_are_those_of_a_plain_loop(layout: TokenLayout, seed: int) -> None:
    blocks = build_blocks(layout, CPU)
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(2, 3, layout.num_tokens, dtype=torch.float64, generator=generator)
    slots = values[..., blocks.token_index].masked_fill(blocks.is_padding, 0)
    sums = blocks.sum_by_document(slots)
    assert sums.shape == (2, 3, layout.num_documents)
    for place, document in enumerate(blocks.order.tolist()):
        expected = sum(values[..., i] for i in range(layout.num_tokens)[layout.document_slice(document)])
        torch.testing.assert_close(sums[..., place], expected, rtol=0, atol=1e-13)


@given(layout=layouts())
def test_splitting_gives_each_documents_rows(layout: TokenLayout) -> None:
    blocks = build_blocks(layout, CPU)
    rows = torch.arange(layout.num_tokens)[blocks.token_index].expand(2, -1)[..., None]
    documents = [document for part in blocks.split(rows) for document in part[1, ..., 0]]
    assert len(documents) == layout.num_documents
    for place, document in enumerate(blocks.order.tolist()):
        where = layout.document_slice(document)
        assert documents[place][: where.stop - where.start].tolist() == list(range(where.start, where.stop))


@given(layout=layouts())
def test_to_input_order_inverts_the_order_in_every_dimension_named(layout: TokenLayout) -> None:
    blocks = build_blocks(layout, CPU)
    count = layout.num_documents
    given_order = torch.arange(count * count).view(count, 1, count)
    stored = given_order[blocks.order][:, :, blocks.order]
    assert torch.equal(blocks.to_input_order(stored, 0, 2), given_order)
    assert torch.equal(blocks.to_input_order(given_order[:, :, blocks.order], 2), given_order)


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0], [1, 2, 0]])
def test_equal_documents_stand_side_by_side(order: list[int]) -> None:
    layout = TokenLayout((1,), ((5, 6), (7, 8), (5, 6)), (2,)).reorder(order)
    blocks = build_blocks(layout, CPU)
    assert stored_ids(layout, blocks).tolist() == [5, 6, 5, 6, 7, 8]
