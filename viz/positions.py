"""Where every query sees every key: the paper's grid of positions, and a ruler for one query."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from viz.identity import Segment, ink_on
from viz.markup import render
from viz.numbers import format_value
from viz.ramps import BLUES, ramp_color
from viz.tokens import Token, segment_runs

MASKED = -1
"""Entry of a position matrix where the query may not see the key."""

_SMALLEST_LABELLED = 3.5
"""Narrowest block, in percent of the axis, that carries its letter; narrower ones have a tooltip."""


@dataclass(frozen=True)
class Ruler:
    """What one query sees: the documents laid out on its position axis.

    query: how to name the query in a sentence. query_position: its own position, in tokens.
    prefix_length: tokens of the prefix, which takes positions 0 .. prefix_length - 1.
    documents: D segments in input order. lengths: int (D,), tokens.
    starts: int (D,), position of each document's first token; MASKED where it is not seen.
    importance: float32 (D,), NaN where there is none (the own document); None for methods that do
        not rank.
    own_document: index into `documents` of the query's own document; None for the suffix.
    first_position: number of the first position in what is shown, 1 for the paper's example.
    """

    query: str
    query_position: int
    prefix_length: int
    documents: tuple[Segment, ...]
    lengths: NDArray[np.integer[Any]]
    starts: NDArray[np.integer[Any]]
    importance: NDArray[np.float32] | None = None
    own_document: int | None = None
    first_position: int = 0

    def __post_init__(self) -> None:
        count = len(self.documents)
        assert len(self.lengths) == len(self.starts) == count
        assert self.importance is None or len(self.importance) == count


@dataclass(frozen=True)
class _PositionCell:
    text: str
    title: str
    fill: str
    ink: str


@dataclass(frozen=True)
class _Block:
    """A piece of the ruler; left and width in percent of the axis."""

    segment: Segment
    left: float
    width: float
    lane: int
    title: str
    is_own: bool

    @property
    def has_label(self) -> bool:
        return self.width >= _SMALLEST_LABELLED


@dataclass(frozen=True)
class _RulerRow:
    """One document in the table beside the ruler; bar in percent of the largest importance."""

    segment: Segment
    positions: str
    value: str
    bar: float
    notes: tuple[str, ...]


def position_table(
    positions: NDArray[np.integer[Any]],
    query_positions: NDArray[np.integer[Any]],
    queries: Sequence[Token],
    keys: Sequence[Token],
    *,
    title: str,
    caption: str,
    selected: int | None = None,
) -> str:
    """HTML table of the paper's grid: each number is the position the key takes for that query.

    positions: int (Q, K), MASKED (-1) where the query may not see the key; such cells are hatched and
    empty, never zero. query_positions: (Q,), the last column. selected: a query row to highlight.
    Lightness encodes the position, from the smallest (light) to the largest (dark) of the table.
    """
    assert positions.shape == (len(queries), len(keys)) and len(query_positions) == len(queries)
    seen = positions[positions != MASKED]
    low = int(seen.min()) if seen.size else 0
    high = int(seen.max()) if seen.size else 0
    cells = [
        [
            _position_cell(int(positions[q, k]), low, high, f"query {query.name}, key {key.name}")
            for k, key in enumerate(keys)
        ]
        for q, query in enumerate(queries)
    ]
    return render(
        "position_table.html",
        title=title,
        caption=caption,
        queries=queries,
        keys=keys,
        query_runs=segment_runs(queries),
        key_runs=segment_runs(keys),
        cells=cells,
        query_positions=[int(position) for position in query_positions],
        selected=selected,
    )


def _position_cell(position: int, low: int, high: int, pair: str) -> _PositionCell:
    if position == MASKED:
        return _PositionCell("", f"{pair}: masked", "", "")
    fill = ramp_color(BLUES, (position - low) / max(high - low, 1))
    return _PositionCell(str(position), f"{pair}: position {position}", fill, ink_on(fill))


def ruler_lanes(
    starts: NDArray[np.integer[Any]], lengths: NDArray[np.integer[Any]]
) -> NDArray[np.integer[Any]]:
    """Lane of each document, int (D,), so that none overlap within a lane; MASKED for those not seen.

    Documents are placed in input order, each in the first lane where its positions are free.
    """
    lanes = np.full(len(starts), MASKED, dtype=np.int64)
    taken: list[list[tuple[int, int]]] = []
    for document, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
        if start == MASKED:
            continue
        lane = 0
        while lane < len(taken) and any(start < end and first < start + length for first, end in taken[lane]):
            lane += 1
        if lane == len(taken):
            taken.append([])
        taken[lane].append((start, start + length))
        lanes[document] = lane
    return lanes


def tied_documents(ruler: Ruler) -> tuple[int, ...]:
    """Indices of documents whose importance exactly equals that of another; the own one never ties."""
    if ruler.importance is None:
        return ()
    seen = [d for d in range(len(ruler.documents)) if not np.isnan(ruler.importance[d])]
    values = [float(ruler.importance[d]) for d in seen]
    return tuple(d for d, value in zip(seen, values, strict=True) if values.count(value) > 1)


def position_ruler(ruler: Ruler) -> str:
    """HTML: the document blocks on the position axis as the query sees them, and why they stand there.

    Blocks that share positions are stacked in lanes. Below them a table with each document's positions and
    importance, nearest first, ties flagged.
    """
    lanes = ruler_lanes(ruler.starts, ruler.lengths)
    ends = np.where(ruler.starts == MASKED, 0, ruler.starts + ruler.lengths)
    total = int(max(ruler.query_position + 1, ruler.prefix_length, ends.max(initial=0)))
    percent = 100 / total
    blocks = [
        _Block(
            segment=segment,
            left=int(ruler.starts[d]) * percent,
            width=int(ruler.lengths[d]) * percent,
            lane=int(lanes[d]),
            title=f"{segment.name}: positions {_positions(ruler, d)}",
            is_own=d == ruler.own_document,
        )
        for d, segment in enumerate(ruler.documents)
        if ruler.starts[d] != MASKED
    ]
    first = ruler.first_position
    own = ruler.own_document
    future = 0 if own is None else int(ends[own]) - ruler.query_position - 1
    return render(
        "ruler.html",
        ruler=ruler,
        text=ruler_text(ruler),
        blocks=blocks,
        num_lanes=max(int(lanes.max(initial=0)) + 1, 1),
        prefix_width=ruler.prefix_length * percent,
        prefix_title=f"the prefix: positions {first}\u2013{first + ruler.prefix_length - 1}",
        query_left=(ruler.query_position + 0.5) * percent,
        future_left=(ruler.query_position + 1) * percent,
        future_width=future * percent,
        future_lane=0 if own is None else int(lanes[own]),
        query_label=ruler.query_position + first,
        ticks=[(tick * percent, tick + first) for tick in axis_ticks(total)],
        rows=_ruler_rows(ruler),
        ranks=ruler.importance is not None,
        unseen=[segment for d, segment in enumerate(ruler.documents) if ruler.starts[d] == MASKED],
    )


def axis_ticks(total: int) -> list[int]:
    """About six round positions from 0 that fit below `total`."""
    step = next(s for e in range(12) for s in (10**e, 2 * 10**e, 5 * 10**e) if total / s <= 7)
    return list(range(0, total, step))


def ruler_text(ruler: Ruler) -> str:
    """A few words that say what the ruler shows, nearest document first."""
    near = _nearest_first(ruler)
    listed = [_seen_document(ruler, d) for d in near]
    text = f"{_capital(ruler.query)} stands at position {ruler.query_position + ruler.first_position}"
    text += f" and sees, nearest first: {', '.join(listed)}." if listed else " and sees no document."
    sharing = sharing_documents(ruler)
    if sharing:
        text += f" {_capital(_listed(ruler, sharing))} share positions."
    unseen = [d for d in range(len(ruler.documents)) if ruler.starts[d] == MASKED]
    if unseen:
        text += f" It may not read {_listed(ruler, unseen)}."
    ties = tied_documents(ruler)
    if ties:
        text += (
            f" {_capital(_listed(ruler, ties))} tie in importance: their token ids decide, never their slots."
        )
    return text


def sharing_documents(ruler: Ruler) -> tuple[int, ...]:
    """Indices of documents that take a position which another document takes too."""
    spans = {
        d: (int(ruler.starts[d]), int(ruler.starts[d] + ruler.lengths[d]))
        for d in range(len(ruler.documents))
        if ruler.starts[d] != MASKED
    }
    return tuple(
        d
        for d, (start, end) in spans.items()
        if any(d != other and start < stop and begin < end for other, (begin, stop) in spans.items())
    )


def _seen_document(ruler: Ruler, document: int) -> str:
    text = f"{ruler.documents[document].name} at {_positions(ruler, document)}"
    if document != ruler.own_document:
        return text
    return f"its own {text}, read up to {ruler.query_position + ruler.first_position}"


def _nearest_first(ruler: Ruler) -> list[int]:
    """Documents seen, the one that ends last first; input order among those that end together."""
    seen = [d for d in range(len(ruler.documents)) if ruler.starts[d] != MASKED]
    return sorted(seen, key=lambda d: -int(ruler.starts[d] + ruler.lengths[d]))


def _ruler_rows(ruler: Ruler) -> list[_RulerRow]:
    ties = tied_documents(ruler)
    sharing = sharing_documents(ruler)
    values = np.zeros(len(ruler.documents)) if ruler.importance is None else np.nan_to_num(ruler.importance)
    largest = float(values.max(initial=0)) or 1.0
    rows = []
    for d in _nearest_first(ruler):
        notes = []
        if d == ruler.own_document:
            notes.append("its own document" + ("" if ruler.importance is None else ", always nearest"))
        if d in ties:
            notes.append("tie, broken by token ids")
        if d in sharing:
            notes.append("shares positions")
        has_value = ruler.importance is not None and not np.isnan(ruler.importance[d])
        rows.append(
            _RulerRow(
                segment=ruler.documents[d],
                positions=_positions(ruler, d),
                value=format_value(float(values[d])) if has_value else "",
                bar=float(values[d]) / largest * 100,
                notes=tuple(notes),
            )
        )
    return rows


def _positions(ruler: Ruler, document: int) -> str:
    """ "first–last" position of a document as shown."""
    start = int(ruler.starts[document]) + ruler.first_position
    last = start + int(ruler.lengths[document]) - 1
    return str(start) if last == start else f"{start}\u2013{last}"


def _listed(ruler: Ruler, documents: Sequence[int]) -> str:
    """ "document A", "documents A and B", "documents A, B and C"."""
    labels = [ruler.documents[d].label for d in documents]
    if len(labels) == 1:
        return f"document {labels[0]}"
    return f"documents {', '.join(labels[:-1])} and {labels[-1]}"


def _capital(text: str) -> str:
    """The text with its first letter in upper case, the others as they are."""
    return text[:1].upper() + text[1:]
