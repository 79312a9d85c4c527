"""The lesson's table of importance: a document a row and a column, a colour and a number a cell."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from viz.drawing.identity import Segment
from viz.drawing.levels import TOP_LEVEL, Scale
from viz.drawing.markup import empty_panel, render
from viz.drawing.numbers import format_value, plain_values
from viz.drawing.picture import Numbers, pick, picture
from viz.figures.importance import Normalisation, normalise

FloatArray = NDArray[np.float32]

NUMBERED_COLUMNS = 24
"""Most columns whose cells have room for their number and a sentence; of more only the colour is drawn."""
_MEASURES = {"raw": "importance", "share": "importance, share of the row", "log": "importance"}


@dataclass(frozen=True)
class _Row:
    """A query document, what its row picks, what is said of it, and (class, text, title) of each cell."""

    segment: Segment
    pick: str
    sentence: str
    cells: list[tuple[str, str, str]]


def importance_picture(
    importance: FloatArray,
    documents: Sequence[Segment],
    *,
    queries: Sequence[str],
    caption: str,
    normalization: Normalisation,
    selected: int | None,
) -> str:
    """Picture: how important query document a (down) finds key document b (across); a row picks its query.

    importance: float32 (D, D), diagonal NaN, drawn hatched and left out of the scale. documents: D segments
    in input order. queries: what each row picks. selected: the chosen query document.
    """
    if len(documents) < 2:
        return empty_panel("There is one document, so there is nothing to rank.")
    assert importance.shape == (len(documents), len(documents))
    title = "Which document finds which important"
    shown = normalise(importance, normalization)
    scale = Scale.of(shown, is_log=normalization == "log")
    is_narrow = len(documents) > NUMBERED_COLUMNS
    rows = [
        _row(who, query, documents, values, levels, is_narrow=is_narrow)
        for who, query, values, levels in zip(
            documents, queries, shown.tolist(), scale.levels(shown).tolist(), strict=True
        )
    ]
    return picture(
        render(
            "importance_table.html",
            rows=rows,
            keys=documents,
            is_narrow=is_narrow,
            selected=selected,
            focus=selected or 0,
            measure=_MEASURES[normalization],
            scale=scale,
            top=TOP_LEVEL,
            title=title,
        ),
        name="importance-of-documents",
        title=title,
        caption=caption,
        numbers=Numbers(
            ("query", *(segment.label for segment in documents)),
            tuple((who.label, *plain_values(row)) for who, row in zip(documents, shown, strict=True)),
        ),
        readout="Point at a cell for its number; a click on a row selects that document as the query.",
    )


def _row(
    who: Segment,
    query: str,
    keys: Sequence[Segment],
    values: Sequence[float],
    levels: Sequence[int],
    *,
    is_narrow: bool,
) -> _Row:
    cells = []
    for key, value, level in zip(keys, values, levels, strict=True):
        css_class = "pine-masked" if level < 0 else f"l{level}"
        if is_narrow:
            cells.append((css_class, "", ""))
            continue
        text = "a document is not ranked against itself" if level < 0 else format_value(value)
        cells.append((css_class, "" if level < 0 else text, f"{who.name}, {key.name}: {text}"))
    return _Row(who, pick(query=query), _row_sentence(who, keys, values), cells)


def _row_sentence(who: Segment, keys: Sequence[Segment], values: Sequence[float]) -> str:
    """The row in words: the three largest of its values."""
    pairs = [(value, key) for key, value in zip(keys, values, strict=True) if not math.isnan(value)]
    # Sorted by the value alone, so that equals stay in input order.
    first = sorted(pairs, key=lambda pair: -pair[0])[:3]
    largest = ", ".join(f"{key.label} {format_value(value)}" for value, key in first)
    return f"{who.name}: most to {largest}" if first else f"{who.name}: nothing is ranked"
