"""The strip of all layers and heads: a colour each, to be chosen by a click or by keyboard."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from viz.drawing.levels import TOP_LEVEL, Scale
from viz.drawing.markup import render
from viz.drawing.numbers import format_value, plain_values
from viz.drawing.picture import Numbers, pick, picture

ROOMY = 40
"""Most layers and most heads whose cells have a sentence each; cells of larger models are small and bare."""


def head_strip(
    values: NDArray[np.float32],
    *,
    layer: int | None,
    head: int | None,
    caption: str,
    measure: str,
    title: str,
    name: str,
) -> str:
    """Picture: a table, layers across and heads down; a cell picks its layer and head, which are outlined.

    values: float32 (A, H). layer, head: the chosen ones, from 0; None (the mean over all) outlines the
    whole row or column, and nothing if both are None. measure: what the values are, such as "spread".
    """
    num_layers, num_heads = values.shape
    scale = Scale.of(values)
    is_roomy = max(values.shape) <= ROOMY
    levels = scale.levels(values).T.tolist()
    body = render(
        "head_strip.html",
        title=title,
        rows=[
            [(level, chosen) for level, chosen in zip(row, chosens, strict=True)]
            for row, chosens in zip(levels, _chosen(values.shape, layer, head), strict=True)
        ],
        titles=[
            [f"layer {a}, head {h}: {measure} {format_value(values[a, h])}" for a in range(num_layers)]
            for h in range(num_heads)
        ]
        if is_roomy
        else None,
        focus=(layer or 0, head or 0),
        # Thousands of them: not even a blank too many.
        in_cell=[pick(layer=a).replace(" ", "") for a in range(num_layers)],
        in_row=[pick(head=h) for h in range(num_heads)],
        over_heads=[pick(layer=a, head=None) for a in range(num_layers)],
        over_layers=pick(layer=None),
        labelled=1 if is_roomy else 8,
        scale=scale,
        top=TOP_LEVEL,
        measure=measure,
    )
    return picture(
        body,
        name=name,
        title=title,
        caption=caption,
        numbers=_numbers(values),
        readout="Point at a cell for its layer and head; a click chooses them for all pictures.",
    )


def _chosen(shape: tuple[int, ...], layer: int | None, head: int | None) -> Sequence[Sequence[bool]]:
    """Whether each cell is outlined, heads first."""
    num_layers, num_heads = shape
    if layer is None and head is None:
        return [[False] * num_layers] * num_heads
    return [[layer in (None, a) and head in (None, h) for a in range(num_layers)] for h in range(num_heads)]


def _numbers(values: NDArray[np.float32]) -> Numbers:
    """The table as it is drawn, so that the row and column of a cell find its number."""
    num_layers, num_heads = values.shape
    columns = ("head", *(f"layer {a}" for a in range(num_layers)))
    return Numbers(columns, tuple((h, *plain_values(values[:, h])) for h in range(num_heads)))
