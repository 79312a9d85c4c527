"""Who may read whom: one small document-level mask per method, and token level on demand."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from viz.identity import Segment
from viz.markup import render
from viz.tokens import Token, token_window

MASKED = 0
ALLOWED = 1
CAUSAL = 2
"""States of a cell: may not read, may read all of it, reads it from left to right (itself)."""

TABLE_LIMIT = 40
"""Most tokens per side for an HTML table; more are drawn by plotly."""
FIGURE_LIMIT = 256
"""Most tokens per side that are drawn at all; more are cut to a window."""


@dataclass(frozen=True)
class SegmentMask:
    """Which segment's tokens may read which segment's, for one method.

    method: label of the method. segments: R segments in input order.
    states: uint8 (R, R) of MASKED, ALLOWED, CAUSAL; query segments down, key segments across.
    scale: what suffix weights on documents are multiplied by, such as "×1/3"; "" for 1.
    """

    method: str
    segments: tuple[Segment, ...]
    states: NDArray[np.uint8]
    scale: str = ""


def mask_states(visible: NDArray[np.bool_], *, has_prefix: bool = True) -> NDArray[np.uint8]:
    """Segment states of a prompt from its document mask.

    visible: bool (D, D), may tokens of document a read document b; the diagonal does not matter.
    Returns uint8 (R, R), R = D + 2 with a prefix and D + 1 without: every row reads the prefix, the
    suffix reads everything, nothing reads the suffix but itself, and each segment itself is CAUSAL.
    """
    raise NotImplementedError


def mask_sentence(mask: SegmentMask) -> str:
    """One sentence that says what the mask shows, worked out from its states."""
    raise NotImplementedError


def mask_cards(masks: Sequence[SegmentMask], *, reference: SegmentMask | None = None) -> str:
    """HTML: one card per method with its mask as a table, all on one scale, a sentence under each.

    reference: cells that differ from this mask (same segments) are outlined.
    """
    return ""


def token_mask(
    allowed: NDArray[np.bool_],
    queries: Sequence[Token],
    keys: Sequence[Token],
    *,
    method: str,
    center: int | None = None,
) -> str | go.Figure:
    """Token-level mask: an HTML table up to TABLE_LIMIT tokens per side, a plotly Figure above.

    allowed: bool (Q, K), True means "may attend". center: the query (and key) index to keep in
    sight when more than FIGURE_LIMIT tokens must be cut; the last query by default.
    """
    if fits_table(len(queries), len(keys)):
        return token_mask_table(allowed, queries, keys, method=method)
    return token_mask_figure(allowed, queries, keys, method=method, center=center)


def fits_table(num_queries: int, num_keys: int) -> bool:
    """True if token_mask returns HTML for so many tokens, False if it returns a Figure."""
    return max(num_queries, num_keys) <= TABLE_LIMIT


def token_mask_table(
    allowed: NDArray[np.bool_], queries: Sequence[Token], keys: Sequence[Token], *, method: str
) -> str:
    """HTML table of a token-level mask, up to TABLE_LIMIT tokens per side."""
    return ""


def token_mask_figure(
    allowed: NDArray[np.bool_],
    queries: Sequence[Token],
    keys: Sequence[Token],
    *,
    method: str,
    center: int | None = None,
) -> go.Figure:
    """Heatmap of a token-level mask, at most FIGURE_LIMIT tokens per side around `center`."""
    return go.Figure()


def token_mask_caption(num_queries: int, num_keys: int, *, method: str, center: int | None = None) -> str:
    """One sentence: what token_mask draws of so many tokens, and what was cut."""
    return ""
