"""Where a query sees the documents, in words, and the paper's grid of positions, token by token."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from viz.drawing.identity import Segment, ink_on
from viz.drawing.markup import render
from viz.drawing.picture import Numbers
from viz.drawing.ramps import BLUES, ramp_color
from viz.drawing.tokens import Token, segment_runs

MASKED = -1
"""Entry of a position matrix where the query may not see the key."""

_LISTED = 6
"""Most documents that a sentence lists; of more, the nearest."""


@dataclass(frozen=True)
class View:
    """What one query sees: the documents laid out on its position axis.

    query: how to name the query in a sentence. segment: whose token it is. query_position: its own position,
    in tokens.
    prefix_length: tokens of the prefix, which takes positions 0 .. prefix_length - 1.
    documents: D segments in input order. lengths: int (D,), tokens.
    starts: int (D,), position of each document's first token; MASKED where it is not seen.
    importance: float32 (D,), NaN where there is none (the own document); None for methods that do
        not rank.
    own_document: index into `documents` of the query's own document; None for the suffix.
    first_position: number of the first position in what is shown, 1 for the paper's example.
    """

    query: str
    segment: Segment
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

    @property
    def place(self) -> int:
        """The query's own position as shown."""
        return self.query_position + self.first_position

    def sees(self, document: int) -> bool:
        """True if the query may read the document."""
        return bool(self.starts[document] != MASKED)

    def span(self, document: int) -> tuple[int, int]:
        """First and last position, as shown, of a document that is seen."""
        first = int(self.starts[document]) + self.first_position
        return first, first + int(self.lengths[document]) - 1


@dataclass(frozen=True)
class _Cell:
    """A cell of a grid; no text where it is masked."""

    text: str
    title: str
    fill: str = ""
    ink: str = ""


# By token ----------------------------------------------------------------------------------------------


def position_table(
    positions: NDArray[np.integer[Any]],
    query_positions: NDArray[np.integer[Any]],
    queries: Sequence[Token],
    keys: Sequence[Token],
    *,
    label: str,
    title: str = "",
) -> str:
    """HTML table of the paper's grid: each number is the position the key takes for that query.

    positions: int (Q, K), MASKED (-1) where the query may not see the key; such cells are hatched and
    empty, never zero. query_positions: (Q,), the last column.
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
        caption=label,
        queries=queries,
        keys=keys,
        query_runs=segment_runs(queries),
        key_runs=segment_runs(keys),
        cells=cells,
        query_positions=[int(position) for position in query_positions],
    )


def _position_cell(position: int, low: int, high: int, pair: str) -> _Cell:
    if position == MASKED:
        return _Cell("", f"{pair}: masked")
    fill = ramp_color(BLUES, (position - low) / max(high - low, 1))
    return _Cell(str(position), f"{pair}: position {position}", fill, ink_on(fill))


def table_numbers(
    positions: NDArray[np.integer[Any]],
    query_positions: NDArray[np.integer[Any]],
    queries: Sequence[Token],
    keys: Sequence[Token],
) -> Numbers:
    """The numbers of a position table: a row per query token, a column per key token."""
    columns = ("query", "query\u2019s position", *(key.name for key in keys))
    rows = tuple(
        (query.name, int(place), *(None if position == MASKED else int(position) for position in row))
        for query, place, row in zip(queries, query_positions, positions, strict=True)
    )
    return Numbers(columns, rows)


# In words ----------------------------------------------------------------------------------------------


def view_text(view: View) -> str:
    """A few words that say what the query sees, nearest document first."""
    near = nearest_first(view)
    listed = [_seen_document(view, d) for d in near[:_LISTED]]
    if len(near) > _LISTED:
        listed.append(f"and {len(near) - _LISTED} more")
    text = f"{capital(view.query)} stands at position {view.place}"
    text += f" and sees, nearest first: {', '.join(listed)}." if listed else " and sees no document."
    sharing = sharing_documents(view)
    if sharing:
        text += f" {capital(_listed(view, sharing))} share positions."
    unseen = [d for d in range(len(view.documents)) if not view.sees(d)]
    if unseen:
        text += f" It may not read {_listed(view, unseen)}."
    ties = tied_documents(view)
    if ties:
        text += (
            f" {capital(_listed(view, ties))} tie in importance: their token ids decide, never their slots."
        )
    return text


def nearest_first(view: View) -> list[int]:
    """Documents seen, the one that ends last first; input order among those that end together."""
    seen = [d for d in range(len(view.documents)) if view.sees(d)]
    return sorted(seen, key=lambda d: -int(view.starts[d] + view.lengths[d]))


def sharing_documents(view: View) -> tuple[int, ...]:
    """Indices of documents that take a position which another document takes too."""
    seen = view.starts != MASKED
    starts, ends = view.starts[seen], (view.starts + view.lengths)[seen]
    # Every document that is seen overlaps itself.
    overlaps = (starts[:, None] < ends) & (starts < ends[:, None])
    return tuple(np.flatnonzero(seen)[overlaps.sum(axis=1) > 1].tolist())


def tied_documents(view: View) -> tuple[int, ...]:
    """Indices of documents whose importance exactly equals that of another; the own one never ties."""
    if view.importance is None:
        return ()
    ranked = [d for d in range(len(view.documents)) if not np.isnan(view.importance[d])]
    values = [float(view.importance[d]) for d in ranked]
    return tuple(d for d, value in zip(ranked, values, strict=True) if values.count(value) > 1)


def positions_text(view: View, document: int) -> str:
    """ "first–last" position of a document that is seen, as shown."""
    first, last = view.span(document)
    return str(first) if last == first else f"{first}\u2013{last}"


def capital(text: str) -> str:
    """The text with its first letter in upper case, the others as they are."""
    return text[:1].upper() + text[1:]


def _seen_document(view: View, document: int) -> str:
    text = f"{view.documents[document].name} at {positions_text(view, document)}"
    return text if document != view.own_document else f"its own {text}, read up to {view.place}"


def _listed(view: View, documents: Sequence[int]) -> str:
    """ "document A", "documents A and B", "documents A, B and C", "7 documents"."""
    labels = [view.documents[d].label for d in documents]
    if len(labels) > _LISTED:
        return f"{len(labels)} documents"
    if len(labels) == 1:
        return f"document {labels[0]}"
    return f"documents {', '.join(labels[:-1])} and {labels[-1]}"
