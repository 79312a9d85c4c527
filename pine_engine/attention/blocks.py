"""Documents in blocks: the storage in which no sum knows the input order.

Inside the attention of order-invariant methods, keys and values of documents are kept document by
document, documents sorted by length class and token ids ("block order"). Everything summed or sorted
over documents runs in this order, so floating-point results are equal to the last bit whatever order
the documents were given in, and exact ties are broken by token ids. What is computed stays a function
of the method alone: hidden states stay in input order, and block order enters no position and no mask.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from pine_engine.prompts.layout import TokenLayout

SHORTEST_IN_CLASS = 0.7
"""Documents share a length class, hence one padded block, if the shortest has this share of the longest."""


@dataclass(frozen=True)
class LengthClass:
    """Documents first .. last - 1 of the block order, each padded to `length` tokens."""

    first: int
    last: int
    length: int

    @property
    def size(self) -> int:
        """Number of slots."""
        return (self.last - self.first) * self.length


@dataclass(frozen=True)
class BlockLayout:
    """Where each document's tokens are stored. D documents in block order, P slots, padding included.

    order: (D,), block order: input index of each document. lengths: (D,) in tokens.
    token_index: (P,), physical index of the token in each slot; padding repeats a real token.
    document: (P,), the slot's document. offset: (P,), the slot's offset in its document.
    is_padding: bool (P,). rows: slots of each document's tokens, without padding.
    """

    classes: tuple[LengthClass, ...]
    order: Tensor
    lengths: Tensor
    token_index: Tensor
    document: Tensor
    offset: Tensor
    is_padding: Tensor
    rows: tuple[slice, ...]

    def padding_bias(self, dtype: torch.dtype) -> Tensor | None:
        """What to add to scores of slots: (P,), 0 for tokens and -inf for padding; None without any."""
        if sum(rows.stop - rows.start for rows in self.rows) == len(self.is_padding):
            return None
        bias = torch.zeros(self.is_padding.shape, dtype=dtype, device=self.is_padding.device)
        return bias.masked_fill_(self.is_padding, -math.inf)

    def split(self, slots: Tensor) -> list[Tensor]:
        """(..., P, d) as one contiguous (..., documents, length, d) per length class."""
        parts = slots.split([group.size for group in self.classes], dim=-2)
        return [
            part.unflatten(-2, (-1, group.length)).contiguous()
            for part, group in zip(parts, self.classes, strict=True)
        ]

    def sum_by_document(self, slots: Tensor) -> Tensor:
        """Sums over each document's slots: (..., P) to (..., D). Padding must hold zeros."""
        parts = slots.split([group.size for group in self.classes], dim=-1)
        sums = [
            part.unflatten(-1, (-1, group.length)).sum(-1)
            for part, group in zip(parts, self.classes, strict=True)
        ]
        return sums[0] if len(sums) == 1 else torch.cat(sums, dim=-1)

    def max_by_document(self, slots: Tensor) -> Tensor:
        """The largest of each document's slots: (..., P) to (..., D). Padding must hold no larger number."""
        parts = slots.split([group.size for group in self.classes], dim=-1)
        largest = [
            part.unflatten(-1, (-1, group.length)).amax(-1)
            for part, group in zip(parts, self.classes, strict=True)
        ]
        return torch.cat(largest, dim=-1)

    def to_input_order(self, values: Tensor, *dims: int, first: int = 0) -> Tensor:
        """The same values with the documents of the given dims in input order.

        first: how many other entries stand before the documents; whatever stands behind them stays too.
        """
        count = values.shape[dims[0]]
        inverse = torch.arange(count, device=values.device)
        inverse[first : first + len(self.order)] = first + torch.argsort(self.order)
        for dim in dims:
            values = values.index_select(dim, inverse)
        return values


def build_blocks(layout: TokenLayout, device: torch.device) -> BlockLayout:
    """The storage layout of a prompt's documents."""
    lengths = layout.lengths.tolist()
    class_of: dict[int, int] = {}
    for length in sorted(set(lengths), reverse=True):
        longest = min(class_of.values(), default=0)
        class_of[length] = longest if length >= SHORTEST_IN_CLASS * longest and longest else length
    order = sorted(range(len(lengths)), key=lambda d: (class_of[lengths[d]], layout.documents[d]))

    padded = [class_of[lengths[d]] for d in order]
    classes = []
    for length in sorted(set(padded)):
        first = padded.index(length)
        classes.append(LengthClass(first, first + padded.count(length), length))

    order_index = torch.tensor(order)
    ordered_lengths = torch.tensor(lengths)[order_index]
    starts = torch.from_numpy(layout.document_starts)[order_index]
    document = torch.repeat_interleave(torch.arange(len(order)), torch.tensor(padded))
    offset = torch.cat([torch.arange(length) for length in padded])
    is_padding = offset >= ordered_lengths[document]
    first_slots = torch.tensor([0, *padded]).cumsum(0).tolist()
    token_index = starts[document] + torch.where(is_padding, 0, offset)
    return BlockLayout(
        classes=tuple(classes),
        order=order_index.to(device),
        lengths=ordered_lengths.to(device),
        token_index=token_index.to(device),
        document=document.to(device),
        offset=offset.to(device),
        is_padding=is_padding.to(device),
        rows=tuple(slice(first, first + lengths[d]) for first, d in zip(first_slots, order, strict=False)),
    )
