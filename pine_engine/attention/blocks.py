"""Block order: storage of documents in which all sums are independent of the input order.

Order-invariant methods store documents sorted by length class and token ids. All sums and sorts over
documents run in this order, so they are bitwise identical in every input order, and token ids resolve exact
ties. Block order affects neither positions nor masks, and hidden states stay in input order.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from pine_engine.prompts.layout import TokenLayout

MIN_LENGTH_RATIO = 0.7
"""Smallest ratio of document lengths in a length class, which is stored as one padded block."""


@dataclass(frozen=True)
class BlockLayout:
    """Storage of D documents in P slots, padding included. Documents are numbered in block order."""

    classes: tuple[tuple[int, int], ...]  # number of documents of each length class, and their padded length
    order: Tensor  # (D,), index of each document in the input
    lengths: Tensor  # (D,), in tokens
    token_index: Tensor  # (P,), physical index of the token; padding repeats the document's first token
    document: Tensor  # (P,), document of each slot
    offset: Tensor  # (P,), offset of each slot in its document
    is_padding: Tensor  # bool (P,)
    rows: tuple[slice, ...]  # slots of each document without padding

    def padding_bias(self, dtype: torch.dtype) -> Tensor | None:
        """Return the bias of scores, (P,): 0 for tokens and -inf for padding; None without padding."""
        if sum(rows.stop - rows.start for rows in self.rows) == len(self.is_padding):
            return None
        bias = torch.zeros(self.is_padding.shape, dtype=dtype, device=self.is_padding.device)
        return bias.masked_fill_(self.is_padding, -math.inf)

    def split(self, slots: Tensor) -> list[Tensor]:
        """Split (..., P, d) into one contiguous (..., documents, length, d) per length class."""
        return [part.contiguous() for part in self.by_class(slots, dim=-2)]

    def by_class(self, slots: Tensor, dim: int) -> Iterator[Tensor]:
        """Yield for each length class its slots, with dimension P split into documents and length."""
        parts = slots.split([count * length for count, length in self.classes], dim=dim)
        for part, group in zip(parts, self.classes, strict=True):
            yield part.unflatten(dim, group)

    def to_input_order(self, values: Tensor, *dims: int) -> Tensor:
        """Permute the documents of some dimensions from block order to input order."""
        inverse = torch.argsort(self.order)
        for dim in dims:
            values = values.index_select(dim, inverse)
        return values


def build_blocks(layout: TokenLayout, device: torch.device) -> BlockLayout:
    """Return the block layout of a prompt's documents."""
    lengths = layout.lengths.tolist()
    class_of: dict[int, int] = {}
    for length in sorted(set(lengths), reverse=True):
        max_length = min(class_of.values(), default=0)
        class_of[length] = max_length if length >= MIN_LENGTH_RATIO * max_length and max_length else length
    order = sorted(range(len(lengths)), key=lambda d: (class_of[lengths[d]], layout.documents[d]))

    padded = [class_of[lengths[d]] for d in order]
    order_index = torch.tensor(order)
    ordered_lengths = torch.tensor(lengths)[order_index]
    starts = torch.from_numpy(layout.document_starts)[order_index]
    document = torch.repeat_interleave(torch.arange(len(order)), torch.tensor(padded))
    offset = torch.cat([torch.arange(length) for length in padded])
    is_padding = offset >= ordered_lengths[document]
    first_slots = torch.tensor([0, *padded]).cumsum(0).tolist()
    token_index = starts[document] + torch.where(is_padding, 0, offset)
    return BlockLayout(
        classes=tuple((padded.count(length), length) for length in sorted(set(padded))),
        order=order_index.to(device),
        lengths=ordered_lengths.to(device),
        token_index=token_index.to(device),
        document=document.to(device),
        offset=offset.to(device),
        is_padding=is_padding.to(device),
        rows=tuple(slice(first, first + lengths[d]) for first, d in zip(first_slots, order, strict=False)),
    )
