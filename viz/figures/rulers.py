"""Rulers: the documents on the position axis as a query sees them, alone or method by method."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from viz.drawing.identity import Segment
from viz.drawing.markup import render
from viz.drawing.numbers import format_value
from viz.drawing.picture import Numbers
from viz.figures.positions import (
    MASKED,
    View,
    capital,
    nearest_first,
    positions_text,
    sharing_documents,
    tied_documents,
    view_text,
)

_SMALLEST_LABELLED = 3.5
"""Narrowest block, in percent of the axis, that carries its letter; narrower ones have a tooltip."""
_LOWEST_LABELLED = 18
"""Lowest lane, in pixels, whose blocks carry their letters."""
_LOWEST = 5


@dataclass(frozen=True)
class MethodView:
    """A row of `method_rulers`: what the query sees under one method."""

    label: str
    view: View


@dataclass(frozen=True)
class _Block:
    """A piece of the ruler; left and width in percent of the axis."""

    segment: Segment
    left: float
    width: float
    lane: int
    title: str
    is_own: bool
    has_label: bool


@dataclass(frozen=True)
class _Track:
    """One axis with its blocks in lanes; lane_height in pixels, the rest in percent of the axis."""

    blocks: tuple[_Block, ...]
    num_lanes: int
    lane_height: int
    prefix_width: float
    prefix_title: str
    query_left: float
    query_label: str
    future_left: float
    future_width: float
    future_lane: int

    @property
    def is_low(self) -> bool:
        return self.lane_height < _LOWEST_LABELLED


@dataclass(frozen=True)
class _RulerRow:
    """One document in the table below the ruler; bar in percent of the largest importance."""

    segment: Segment
    positions: str
    value: str
    bar: float
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _MethodRow:
    label: str
    track: _Track
    text: str


def position_ruler(view: View) -> str:
    """HTML: the document blocks on the position axis as the query sees them, and why they stand there.

    Blocks that share positions are stacked in lanes. Below them a table with each document's positions and
    importance, nearest first, ties flagged.
    """
    total = axis_length(view)
    return render(
        "ruler.html",
        view=view,
        text=view_text(view),
        track=_track(view, total, room=640, tallest=34),
        ticks=_ticks(total, view.first_position),
        rows=_ruler_rows(view),
        ranks=view.importance is not None,
        unseen=[segment for d, segment in enumerate(view.documents) if not view.sees(d)],
    )


def ruler_numbers(view: View) -> Numbers:
    """The numbers of one ruler: a row per document, nearest first, then those that are masked."""
    near = nearest_first(view)
    ties = tied_documents(view)
    rows = []
    for d in [*near, *(d for d in range(len(view.documents)) if d not in near)]:
        importance = None if view.importance is None else float(view.importance[d])
        span = view.span(d) if view.sees(d) else (None, None)
        rows.append((view.documents[d].label, *span, importance, d == view.own_document, d in ties))
    columns = ("document", "first position", "last position", "importance", "own document", "tie")
    return Numbers(columns, tuple(rows))


def method_rulers(rows: Sequence[MethodView]) -> str:
    """HTML: one low ruler per method, all on one axis, for the same query."""
    total = max(axis_length(row.view) for row in rows)
    drawn = [
        _MethodRow(
            row.label, _track(row.view, total, room=132, tallest=26), f"{row.label}: {view_text(row.view)}"
        )
        for row in rows
    ]
    return render("ruler_rows.html", rows=drawn, ticks=_ticks(total, rows[0].view.first_position))


def method_numbers(rows: Sequence[MethodView]) -> Numbers:
    """The numbers of `method_rulers`: a row per method and document."""
    numbers = [
        (row.label, row.view.place, segment.label, *(row.view.span(d) if row.view.sees(d) else (None, None)))
        for row in rows
        for d, segment in enumerate(row.view.documents)
    ]
    return Numbers(
        ("method", "query\u2019s position", "document", "first position", "last position"), tuple(numbers)
    )


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


def axis_length(view: View) -> int:
    """Positions from 0 to the last one that the query or a document it sees takes."""
    ends = np.where(view.starts == MASKED, 0, view.starts + view.lengths)
    return int(max(view.query_position + 1, view.prefix_length, ends.max(initial=0)))


def axis_ticks(total: int) -> list[int]:
    """About six round positions from 0 that fit below `total`."""
    step = next(s for e in range(12) for s in (10**e, 2 * 10**e, 5 * 10**e) if total / s <= 7)
    return list(range(0, total, step))


def _ticks(total: int, first: int) -> list[tuple[float, int]]:
    """Place in percent of the axis, and number, of each tick."""
    return [(tick * 100 / total, tick + first) for tick in axis_ticks(total)]


def _track(view: View, total: int, *, room: int, tallest: int) -> _Track:
    """The view on an axis of `total` positions; room: height in pixels that its lanes share."""
    lanes = ruler_lanes(view.starts, view.lengths)
    num_lanes = max(int(lanes.max(initial=0)) + 1, 1)
    lane_height = max(_LOWEST, min(tallest, room // num_lanes))
    percent = 100 / total
    own = view.own_document
    end = view.query_position + 1 if own is None else int(view.starts[own] + view.lengths[own])
    blocks = tuple(
        _Block(
            segment=segment,
            left=int(view.starts[d]) * percent,
            width=int(view.lengths[d]) * percent,
            lane=int(lanes[d]),
            title=f"{capital(segment.name)}: positions {positions_text(view, d)}",
            is_own=d == own,
            has_label=lane_height >= _LOWEST_LABELLED
            and int(view.lengths[d]) * percent >= _SMALLEST_LABELLED,
        )
        for d, segment in enumerate(view.documents)
        if view.sees(d)
    )
    first = view.first_position
    return _Track(
        blocks=blocks,
        num_lanes=num_lanes,
        lane_height=lane_height,
        prefix_width=view.prefix_length * percent,
        prefix_title=f"The prefix: positions {first}\u2013{first + view.prefix_length - 1}",
        query_left=(view.query_position + 0.5) * percent,
        query_label=f"query at {view.place}",
        future_left=(view.query_position + 1) * percent,
        future_width=(end - view.query_position - 1) * percent,
        future_lane=0 if own is None else int(lanes[own]),
    )


def _ruler_rows(view: View) -> list[_RulerRow]:
    ties = tied_documents(view)
    sharing = sharing_documents(view)
    values = np.zeros(len(view.documents)) if view.importance is None else np.nan_to_num(view.importance)
    largest = float(values.max(initial=0)) or 1.0
    rows = []
    for d in nearest_first(view):
        notes = []
        if d == view.own_document:
            notes.append("its own document" + ("" if view.importance is None else ", always nearest"))
        if d in ties:
            notes.append("tie, broken by token ids")
        if d in sharing:
            notes.append("shares positions")
        has_value = view.importance is not None and not np.isnan(view.importance[d])
        rows.append(
            _RulerRow(
                segment=view.documents[d],
                positions=positions_text(view, d),
                value=format_value(float(values[d])) if has_value else "",
                bar=float(values[d]) / largest * 100,
                notes=tuple(notes),
            )
        )
    return rows
