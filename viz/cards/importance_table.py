"""Tutorial's table of importance: documents in rows and columns, a color and a number per cell."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from viz.drawing.identity import Segment
from viz.drawing.markup import empty_panel, render
from viz.drawing.picture import Numbers, picture
from viz.drawing.text import format_value, plain_values
from viz.figures.importance import normalize, place_name

MAX_NUMBERED = 24
"""Maximum columns whose cells have space for their number; of more, only the color is drawn."""

MAX_LEVEL = 32
"""Levels of color are 0 .. MAX_LEVEL, evenly spaced on cividis, in the classes l0 .. l32 of figures.css."""

_TITLE = "Which document finds which important"


def importance_table(
    importance: NDArray[np.float32],
    documents: Sequence[Segment],
    *,
    method: str,
    layer: int | None,
    head: int | None,
    dtype: str,
) -> str:
    """Render the importance (D, D) of documents in columns for documents in rows, as shares of the row.

    The diagonal is NaN: it is hatched and not part of the color scale. `documents` are in input order.
    """
    if len(documents) < 2:
        return empty_panel("There is one document, so there is nothing to rank.")
    shares = normalize(importance, "share")
    largest = float(np.nanmax(shares)) or 1.0
    levels = np.rint(np.nan_to_num(shares / largest) * MAX_LEVEL).astype(int)
    rows = [
        (query, _row_sentence(query, documents, values), _cells(query, documents, values, row_levels))
        for query, values, row_levels in zip(documents, shares.tolist(), levels.tolist(), strict=True)
    ]
    return picture(
        render(
            "importance_table.html",
            rows=rows,
            keys=documents,
            is_narrow=len(documents) > MAX_NUMBERED,
            largest=format_value(largest),
            max_level=MAX_LEVEL,
            title=_TITLE,
        ),
        name="importance-of-documents",
        title=_TITLE,
        caption=(
            f"{method}, {place_name(layer, head)}: attention mass per key-document token as a share of its "
            "row, summed over the query document’s tokens, positions ignored, computed in "
            f"{dtype}. Attention weights are not a full explanation of the answer."
        ),
        numbers=Numbers(
            ("query", *(segment.label for segment in documents)),
            tuple((query.label, *plain_values(row)) for query, row in zip(documents, shares, strict=True)),
        ),
        readout="Point at a cell for its number.",
    )


def _cells(
    query: Segment, keys: Sequence[Segment], values: Sequence[float], levels: Sequence[int]
) -> list[tuple[str, str, str]]:
    """Return class, text and title of each cell of a row."""
    cells = []
    for key, value, level in zip(keys, values, levels, strict=True):
        is_masked = math.isnan(value)
        css_class = "pine-masked" if is_masked else f"l{level}"
        if len(keys) > MAX_NUMBERED:
            cells.append((css_class, "", ""))
        elif is_masked:
            title = f"{query.name}, {key.name}: a document is not ranked against itself"
            cells.append((css_class, "", title))
        else:
            text = format_value(value)
            cells.append((css_class, text, f"{query.name}, {key.name}: {text}"))
    return cells


def _row_sentence(query: Segment, keys: Sequence[Segment], values: Sequence[float]) -> str:
    """Name the three largest values of a row, equal ones in input order."""
    pairs = [(value, key) for key, value in zip(keys, values, strict=True) if not math.isnan(value)]
    first = sorted(pairs, key=lambda pair: -pair[0])[:3]
    largest = ", ".join(f"{key.label} {format_value(value)}" for value, key in first)
    return f"{query.name}: most to {largest}" if first else f"{query.name}: nothing is ranked"
