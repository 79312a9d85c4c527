"""Where every query sees every key: the paper's grid of positions, and a ruler for one query."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from viz.identity import Segment
from viz.tokens import Token

MASKED = -1
"""Entry of a position matrix where the query may not see the key."""


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
    reversed_order: True if the method puts the important documents farther away.
    """

    query: str
    query_position: int
    prefix_length: int
    documents: tuple[Segment, ...]
    lengths: NDArray[np.int64]
    starts: NDArray[np.int64]
    importance: NDArray[np.float32] | None = None
    own_document: int | None = None
    reversed_order: bool = False


def position_table(
    positions: NDArray[np.int64],
    query_positions: NDArray[np.int64],
    queries: Sequence[Token],
    keys: Sequence[Token],
    *,
    caption: str,
    selected: int | None = None,
) -> str:
    """HTML table of the paper's grid: each number is the position the key takes for that query.

    positions: int (Q, K), MASKED (-1) where the query may not see the key; such cells are hatched and
    empty, never zero. query_positions: (Q,), the last column. selected: a query row to highlight.
    Lightness encodes the position, from 0 to the largest in the table.
    """
    return ""


def ruler_lanes(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Lane of each document, (D,), so that none overlap within a lane; MASKED for documents not seen."""
    raise NotImplementedError


def position_ruler(ruler: Ruler) -> str:
    """HTML: the document blocks on the position axis as the query sees them, and why they stand there.

    Blocks that share positions are stacked in lanes. Beside them a table with each document's importance, in
    order of distance, ties flagged.
    """
    return ""


def ruler_text(ruler: Ruler) -> str:
    """One sentence that says what the ruler shows."""
    return ""
