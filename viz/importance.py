"""Which document each query finds important: document matrix, answer tokens, layers and heads."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from viz.identity import Segment
from viz.tokens import Token

Normalisation = Literal["raw", "share"]
FloatArray = NDArray[np.float32]


def normalise(importance: FloatArray, normalisation: Normalisation) -> FloatArray:
    """Importance as it is ("raw"), or divided by the sum of its row ("share").

    importance: float32 (..., D), NaN where there is none. Returns the same shape, float32; NaN stays
    NaN, and a row that sums to zero stays zero.
    """
    raise NotImplementedError


def spread(importance: FloatArray) -> FloatArray:
    """How decisive each layer and head is: largest minus smallest share, mean over the queries.

    importance: float32 (A, H, Q, D), NaN where there is none. Returns float32 (A, H), 0 (all
    documents alike) to 1 (one document takes everything).
    """
    raise NotImplementedError


def most_decisive(spreads: FloatArray) -> tuple[int, int]:
    """Layer and head with the largest spread; the first of equals. spreads: (A, H)."""
    raise NotImplementedError


def importance_caption(
    *,
    method: str,
    layer: int | None,
    head: int | None,
    normalisation: Normalisation,
    dtype: str,
    rows: str = "document",
) -> str:
    """One sentence: layer, head, aggregation and dtype of what is drawn.

    layer, head: from 0; None means the mean over layers or heads. rows: "document" or "token".
    """
    return ""


def importance_table(
    importance: FloatArray | None,
    documents: Sequence[Segment],
    *,
    caption: str,
    normalisation: Normalisation = "raw",
    selected: int | None = None,
) -> str:
    """HTML table: how important query document a (down) finds key document b (across).

    importance: float32 (D, D), diagonal NaN, drawn hatched and left out of the scale; None (a method
    that does not rank) gives a sentence that says so. documents: D segments in input order.
    Cells carry data-query and data-key (indices into `documents`). Colour: cividis from zero.
    """
    return ""


def importance_figure(
    importance: FloatArray | None,
    tokens: Sequence[Token],
    documents: Sequence[Segment],
    *,
    normalisation: Normalisation = "raw",
) -> go.Figure:
    """Heatmap: how important each suffix or generated token (down) finds each document (across).

    importance: float32 (Q, D); None gives a figure that says so. Colour: cividis from zero.
    """
    return go.Figure()


def spread_figure(
    spreads: FloatArray | None, *, layer: int | None = None, head: int | None = None
) -> go.Figure:
    """Heatmap, layers down and heads across: how decisive each head is; the chosen one is marked.

    spreads: float32 (A, H) from `spread`; None gives a figure that says so.
    """
    return go.Figure()


def empty_figure(sentence: str, *, height: int = 160) -> go.Figure:
    """A figure that only says why there is nothing to draw."""
    return go.Figure()


def empty_panel(sentence: str) -> str:
    """HTML that only says why there is nothing to draw."""
    return ""
