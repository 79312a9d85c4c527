"""In how many orders the heads of a layer place the documents, and which heads agree."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from viz.drawing.identity import Segment, ink_on
from viz.drawing.markup import render
from viz.drawing.picture import Numbers, pick
from viz.drawing.ramps import CIVIDIS, ramp_color
from viz.figures.positions import MASKED

IntArray = NDArray[np.integer[Any]]

_BADGES = 8
"""Most documents of an order that are drawn; of more, the nearest."""


@dataclass(frozen=True)
class HeadGroup:
    """Heads of one layer that place the documents in the same order.

    order: documents by index, the nearest first. heads: from 0.
    """

    order: tuple[int, ...]
    heads: tuple[int, ...]


@dataclass(frozen=True)
class _LayerCell:
    layer: int
    count: int
    sentence: str
    pick: str
    fill: str
    ink: str


@dataclass(frozen=True)
class _Group:
    """A group as drawn: the nearest documents, how many more there are, (head, what it picks)."""

    nearest: tuple[Segment, ...]
    num_more: int
    letters: str
    heads: tuple[tuple[int, str], ...]


def nearest_orders(starts: IntArray) -> IntArray:
    """The documents by index, the nearest first and masked ones last, as each head places them.

    starts: int (..., D), where each document starts; MASKED where it is not seen. The same shape.
    """
    return np.argsort(-starts, axis=-1, kind="stable")


def distinct_orders(starts: IntArray) -> NDArray[np.int64]:
    """How many orders the heads of each layer use for one query, int64 (A,). starts: int (A, H, D)."""
    return np.array([len(np.unique(layer, axis=0)) for layer in nearest_orders(starts)], dtype=np.int64)


def head_groups(starts: IntArray) -> tuple[HeadGroup, ...]:
    """The heads of one layer by their order: the most common one first, then by their first head.

    starts: int (H, D).
    """
    by_order: dict[tuple[int, ...], list[int]] = {}
    for head, order in enumerate(_seen_orders(starts)):
        by_order.setdefault(order, []).append(head)
    groups = [HeadGroup(order, tuple(heads)) for order, heads in by_order.items()]
    return tuple(sorted(groups, key=lambda group: (-len(group.heads), group.heads)))


def order_strip(starts: IntArray, documents: Sequence[Segment], *, layer: int, head: int) -> str:
    """HTML: how many orders each layer's heads use for one query, and the chosen layer's heads by order.

    starts: int (A, H, D). A click on a layer picks it, one on a head picks layer and head.
    """
    num_heads = starts.shape[1]
    cells = [_layer_cell(i, count, num_heads) for i, count in enumerate(distinct_orders(starts).tolist())]
    groups = [
        _Group(
            nearest=tuple(documents[d] for d in group.order[:_BADGES]),
            num_more=max(len(group.order) - _BADGES, 0),
            letters=_letters(group.order, documents),
            heads=tuple((member, pick(layer=layer, head=member)) for member in group.heads),
        )
        for group in head_groups(starts[layer])
    ]
    return render("order_strip.html", cells=cells, groups=groups, layer=layer, head=head)


def order_numbers(starts: IntArray, documents: Sequence[Segment]) -> Numbers:
    """The numbers of the strip: a row per layer and head, with its order and how many its layer uses."""
    rows = tuple(
        (layer, head, count, _letters(order, documents))
        for layer, count in enumerate(distinct_orders(starts).tolist())
        for head, order in enumerate(_seen_orders(starts[layer]))
    )
    return Numbers(("layer", "head", "different orders in the layer", "documents, nearest first"), rows)


def _layer_cell(layer: int, count: int, num_heads: int) -> _LayerCell:
    fill = ramp_color(CIVIDIS, (count - 1) / max(num_heads - 1, 1))
    orders = "one order" if count == 1 else f"{count} different orders"
    sentence = f"Layer {layer}: {orders} among {num_heads} heads"
    return _LayerCell(layer, count, sentence, pick(layer=layer), fill, ink_on(fill))


def _seen_orders(starts: IntArray) -> list[tuple[int, ...]]:
    """The order of each head of one layer, without the documents that the query may not read."""
    seen = (starts != MASKED).sum(axis=-1)
    return [
        tuple(order[:count])
        for order, count in zip(nearest_orders(starts).tolist(), seen.tolist(), strict=True)
    ]


def _letters(order: Sequence[int], documents: Sequence[Segment]) -> str:
    return " ".join(documents[d].label for d in order)
