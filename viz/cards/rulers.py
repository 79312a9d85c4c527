"""Rulers: documents on the position axis of a query, for one method or several, and in a sentence."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from viz.drawing.identity import Segment
from viz.drawing.markup import render
from viz.drawing.picture import Numbers, picture
from viz.drawing.text import format_value, join_words
from viz.figures.positions import MASKED, IntArray, document_lanes

_MAX_LISTED = 6
"""Maximum documents that a sentence lists; of more, the nearest."""

_MIN_LABEL_PERCENT = 3.5
"""Minimum width of a block with a letter, in percent of the axis; narrower ones have a tooltip."""

_MIN_LABEL_PX = 18
_MIN_LANE_PX = 5


@dataclass(frozen=True)
class QueryView:
    """Positions of the documents for one query.

    Attributes:
        query: Name of the query in a sentence.
        query_position: Position of the query, in tokens.
        prefix_length: Tokens of the prefix, at the positions from 0.
        documents: D segments in input order.
        lengths: (D,), in tokens.
        starts: (D,), position of the first token of each document; MASKED where it is not visible.
        importance: float32 (D,), NaN for the document of the query; None for methods that do not rank.
        own_document: Index of the document of the query; None for the suffix.
        first_position: Number of the first position as shown, 1 for the paper's example.
    """

    query: str
    query_position: int
    prefix_length: int
    documents: tuple[Segment, ...]
    lengths: IntArray
    starts: IntArray
    importance: NDArray[np.float32] | None = None
    own_document: int | None = None
    first_position: int = 0

    @property
    def shown_position(self) -> int:
        """Position of the query as shown."""
        return self.query_position + self.first_position

    def is_visible(self, document: int) -> bool:
        """Check whether the query may attend to the document."""
        return bool(self.starts[document] != MASKED)

    def span(self, document: int) -> tuple[int, int]:
        """Return the first and last position, as shown, of a visible document."""
        first = int(self.starts[document]) + self.first_position
        return first, first + int(self.lengths[document]) - 1

    def span_text(self, document: int) -> str:
        """Write the positions of a visible document as "first–last"."""
        first, last = self.span(document)
        return str(first) if last == first else f"{first}\u2013{last}"

    @property
    def axis_length(self) -> int:
        """Number of positions up to the last one of the query or of a visible document."""
        ends = np.where(self.starts == MASKED, 0, self.starts + self.lengths)
        return int(max(self.query_position + 1, self.prefix_length, ends.max(initial=0)))


def nearest_first(view: QueryView) -> list[int]:
    """Return the visible documents, the one that ends last first, in input order among equal ends."""
    visible = [d for d in range(len(view.documents)) if view.is_visible(d)]
    return sorted(visible, key=lambda d: -int(view.starts[d] + view.lengths[d]))


def hidden_documents(view: QueryView) -> list[int]:
    """Return the documents that are masked for the query."""
    return [d for d in range(len(view.documents)) if not view.is_visible(d)]


def overlapping_documents(view: QueryView) -> list[int]:
    """Return the documents with a position that another document has too."""
    starts, ends = view.starts, view.starts + view.lengths
    visible = starts != MASKED
    overlaps = (starts[:, None] < ends) & (starts < ends[:, None]) & visible & visible[:, None]
    np.fill_diagonal(overlaps, False)
    return [int(d) for d in np.flatnonzero(overlaps.any(axis=1))]


def tied_documents(view: QueryView) -> list[int]:
    """Return the documents whose importance exactly equals that of another; NaN never ties."""
    values = [] if view.importance is None else view.importance.tolist()
    return [d for d, value in enumerate(values) if value == value and values.count(value) > 1]


def view_text(view: QueryView) -> str:
    """Describe the visible documents, nearest first."""
    near = nearest_first(view)
    listed = [_describe(view, d) for d in near[:_MAX_LISTED]]
    if len(near) > _MAX_LISTED:
        listed.append(f"and {len(near) - _MAX_LISTED} more")
    text = f"{capital(view.query)} stands at position {view.shown_position}"
    text += f" and sees, nearest first: {', '.join(listed)}." if listed else " and sees no document."
    if overlapping := overlapping_documents(view):
        text += f" {capital(_name(view, overlapping))} share positions."
    if hidden := hidden_documents(view):
        text += f" It may not read {_name(view, hidden)}."
    if ties := tied_documents(view):
        text += f" {capital(_name(view, ties))} tie in importance: their token ids decide, never their slots."
    return text


def capital(text: str) -> str:
    """Return the text with its first letter in upper case, the others unchanged."""
    return text[:1].upper() + text[1:]


def _describe(view: QueryView, document: int) -> str:
    text = f"{view.documents[document].name} at {view.span_text(document)}"
    return text if document != view.own_document else f"its own {text}, read up to {view.shown_position}"


def _name(view: QueryView, documents: Sequence[int]) -> str:
    """Write "document A", "documents A, B and C", or "7 documents"."""
    labels = [view.documents[d].label for d in documents]
    if len(labels) > _MAX_LISTED:
        return f"{len(labels)} documents"
    return f"document{'s' * (len(labels) > 1)} {join_words(labels)}"


def position_ruler(view: QueryView, *, name: str, caption: str) -> str:
    """Render the documents on the position axis of the query, and a table of them, nearest first.

    Documents at the same positions are stacked in lanes.
    """
    ties, overlapping, near = tied_documents(view), overlapping_documents(view), nearest_first(view)
    values = np.zeros(len(view.documents)) if view.importance is None else np.nan_to_num(view.importance)
    largest = float(values.max(initial=0)) or 1.0
    rows, numbers = [], []
    for d in [*near, *hidden_documents(view)]:
        importance = None if view.importance is None else float(view.importance[d])
        span = view.span(d) if view.is_visible(d) else (None, None)
        numbers.append((view.documents[d].label, *span, importance, d == view.own_document, d in ties))
    for d in near:
        has_value = view.importance is not None and not np.isnan(view.importance[d])
        own = "its own document" + ("" if view.importance is None else ", always nearest")
        notes = {
            own: d == view.own_document,
            "tie, broken by token ids": d in ties,
            "shares positions": d in overlapping,
        }
        rows.append(
            {
                "segment": view.documents[d],
                "positions": view.span_text(d),
                "value": format_value(float(values[d])) if has_value else "",
                "bar": float(values[d]) / largest * 100,
                "notes": [note for note, holds in notes.items() if holds],
            }
        )
    body = render(
        "ruler.html",
        view=view,
        text=view_text(view),
        track=_track(view, view.axis_length, max_px=640, max_lane_px=34),
        ticks=_ticks(view.axis_length, view.first_position),
        rows=rows,
        ranks=view.importance is not None,
        unseen=[view.documents[d] for d in hidden_documents(view)],
    )
    columns = ("document", "first position", "last position", "importance", "own document", "tie")
    return picture(body, name=name, caption=caption, numbers=Numbers(columns, tuple(numbers)))


def method_rulers(views: Mapping[str, QueryView], *, name: str, caption: str) -> str:
    """Render one low ruler per method label, all on one axis, for the same query."""
    total = max(view.axis_length for view in views.values())
    rows = [
        {
            "label": label,
            "track": _track(view, total, max_px=132, max_lane_px=26),
            "text": f"{label}: {view_text(view)}",
        }
        for label, view in views.items()
    ]
    numbers = [
        (
            label,
            view.shown_position,
            segment.label,
            *(view.span(d) if view.is_visible(d) else (None, None)),
        )
        for label, view in views.items()
        for d, segment in enumerate(view.documents)
    ]
    columns = ("method", "query\u2019s position", "document", "first position", "last position")
    first_position = next(iter(views.values())).first_position
    return picture(
        render("ruler_rows.html", rows=rows, ticks=_ticks(total, first_position)),
        name=name,
        caption=caption,
        numbers=Numbers(columns, tuple(numbers)),
        readout="Point at a document to read its positions.",
    )


def axis_ticks(total: int) -> list[int]:
    """Return about six round positions from 0 that are less than `total`."""
    step = next(s for e in range(12) for s in (10**e, 2 * 10**e, 5 * 10**e) if total / s <= 7)
    return list(range(0, total, step))


def _ticks(total: int, first_position: int) -> list[tuple[float, int]]:
    """Return the place in percent of the axis, and the number, of each tick."""
    return [(tick * 100 / total, tick + first_position) for tick in axis_ticks(total)]


def _track(view: QueryView, total: int, *, max_px: int, max_lane_px: int) -> dict[str, Any]:
    """Lay out a view on an axis of `total` positions; places and widths are in percent of it."""
    lanes = document_lanes(view.starts, view.lengths)
    num_lanes = max(int(lanes.max(initial=0)) + 1, 1)
    lane_px = max(_MIN_LANE_PX, min(max_lane_px, max_px // num_lanes))
    percent = 100 / total
    own = view.own_document
    end = view.query_position + 1 if own is None else int(view.starts[own] + view.lengths[own])
    blocks = [
        {
            "segment": segment,
            "left": int(view.starts[d]) * percent,
            "width": int(view.lengths[d]) * percent,
            "lane": int(lanes[d]),
            "title": f"{capital(segment.name)}: positions {view.span_text(d)}",
            "is_own": d == own,
            "has_label": lane_px >= _MIN_LABEL_PX and view.lengths[d] * percent >= _MIN_LABEL_PERCENT,
        }
        for d, segment in enumerate(view.documents)
        if view.is_visible(d)
    ]
    first = view.first_position
    return {
        "blocks": blocks,
        "num_lanes": num_lanes,
        "lane_height": lane_px,
        "is_low": lane_px < _MIN_LABEL_PX,
        "prefix_width": view.prefix_length * percent,
        "prefix_title": f"The prefix: positions {first}\u2013{first + view.prefix_length - 1}",
        "query_left": (view.query_position + 0.5) * percent,
        "query_label": f"query at {view.shown_position}",
        "future_left": (view.query_position + 1) * percent,
        "future_width": (end - view.query_position - 1) * percent,
        "future_lane": 0 if own is None else int(lanes[own]),
    }
