"""Table of the paper's grid: the position of each key token for each query token."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from viz.drawing.identity import Segment, ink_on
from viz.drawing.markup import render
from viz.drawing.text import shorten, visible_text
from viz.figures.positions import MASKED, IntArray
from viz.theme import BLUES


@dataclass(frozen=True)
class Token:
    """Token of a table.

    Attributes:
        text: Text as decoded, untrusted.
        segment: Segment of the prompt.
        offset: Tokens from the start of the segment.
    """

    text: str
    segment: Segment
    offset: int

    @property
    def label(self) -> str:
        """The text with visible blanks, at most 12 characters."""
        return shorten(visible_text(self.text), 12)

    @property
    def name(self) -> str:
        """Name in a sentence, counted from 1: token 3 “cat” of document A."""
        return f"token {self.offset + 1} \u201c{self.label}\u201d of {self.segment.name}"


def position_table(
    positions: IntArray,
    query_positions: IntArray,
    queries: Sequence[Token],
    keys: Sequence[Token],
    *,
    label: str,
    title: str = "",
) -> str:
    """Render positions (Q, K), hatched and empty where MASKED, and the positions of the queries (Q,).

    Lightness encodes the position, from the smallest (light) to the largest (dark) of the table.
    """
    visible = positions[positions != MASKED]
    low, high = (int(visible.min()), int(visible.max())) if visible.size else (0, 0)
    cells = [
        [
            _cell(int(positions[q, k]), low, high, f"query {query.name}, key {key.name}")
            for k, key in enumerate(keys)
        ]
        for q, query in enumerate(queries)
    ]
    return render(
        "position_table.html",
        title=title,
        caption=label,
        queries=queries,
        keys=keys,
        query_runs=_segment_runs(queries),
        key_runs=_segment_runs(keys),
        cells=cells,
        query_positions=query_positions.tolist(),
    )


def table_rows(
    positions: IntArray, query_positions: IntArray, queries: Sequence[str]
) -> tuple[tuple[str | int | None, ...], ...]:
    """Return the numbers of a table: query, its position, and the position of each key."""
    return tuple(
        (query, int(position), *(None if key == MASKED else int(key) for key in row))
        for query, position, row in zip(queries, query_positions, positions, strict=True)
    )


def _cell(position: int, low: int, high: int, pair: str) -> dict[str, str]:
    if position == MASKED:
        return {"text": "", "title": f"{pair}: masked"}
    fill = _blue((position - low) / max(high - low, 1))
    return {"text": str(position), "title": f"{pair}: position {position}", "fill": fill, "ink": ink_on(fill)}


def _blue(level: float) -> str:
    """Return the blue at a level of 0 to 1 as #RRGGBB, linear in sRGB between the stops."""
    index = level * (len(BLUES) - 1)
    stops = [[int(color[i : i + 2], 16) for color in BLUES] for i in (1, 3, 5)]
    return "#" + "".join(
        f"{round(float(np.interp(index, range(len(BLUES)), channel))):02X}" for channel in stops
    )


def _segment_runs(tokens: Sequence[Token]) -> list[tuple[Segment, int, int]]:
    """Return segment, first index and number of tokens of each run of one segment."""
    runs: list[tuple[Segment, int, int]] = []
    for segment, group in groupby(tokens, key=lambda token: token.segment):
        start = runs[-1][1] + runs[-1][2] if runs else 0
        runs.append((segment, start, len(list(group))))
    return runs
