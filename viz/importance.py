"""Which document each query finds important: document matrix, answer tokens, layers and heads."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from viz.identity import Segment, ink_on
from viz.markup import render
from viz.numbers import format_value
from viz.plot_style import COLOR_BAR_HEIGHT, base_figure, color_bar, empty_figure, plotly_text
from viz.ramps import CIVIDIS, plotly_scale, ramp_color
from viz.tokens import Token

__all__ = [
    "Normalisation",
    "empty_figure",
    "empty_panel",
    "importance_caption",
    "importance_figure",
    "importance_table",
    "most_decisive",
    "normalise",
    "select_importance",
    "spread",
    "spread_figure",
]

Normalisation = Literal["raw", "share", "log"]
FloatArray = NDArray[np.float32]

ROW_LIMIT = 256
"""Most query tokens that are drawn; of more, the last ones."""
NOT_RANKED = "This method does not rank documents, so there is no importance to show."
_FRAME_HEIGHT = 90 + COLOR_BAR_HEIGHT
_VALUE_NAMES = {"raw": "importance (attention mass per document token)", "share": "share of the row"}


@dataclass(frozen=True)
class _ImportanceCell:
    query: int
    key: int
    text: str
    title: str
    fill: str
    ink: str


def select_importance(importance: FloatArray, layer: int | None, head: int | None) -> FloatArray:
    """One layer and head of a trace, None for the mean over them.

    importance: float32 (A, H, Q, D). Returns float32 (Q, D); NaN stays NaN.
    """
    layers = importance if layer is None else importance[layer : layer + 1]
    heads = layers if head is None else layers[:, head : head + 1]
    return np.asarray(heads.mean(axis=(0, 1), dtype=np.float64), dtype=np.float32)


def normalise(importance: FloatArray, normalisation: Normalisation) -> FloatArray:
    """Importance as it is ("raw"), or divided by the sum of its row ("share").

    importance: float32 (..., D), NaN where there is none. Returns the same shape, float32; NaN stays
    NaN, and a row that sums to zero stays zero.
    """
    if normalisation == "raw":
        return np.asarray(importance, dtype=np.float32)
    sums = np.nansum(importance, axis=-1, keepdims=True, dtype=np.float64)
    return np.asarray(importance / np.where(sums == 0, 1, sums), dtype=np.float32)


def spread(importance: FloatArray) -> FloatArray:
    """How decisive each layer and head is: largest minus smallest share, mean over the queries.

    importance: float32 (A, H, Q, D), NaN where there is none. Returns float32 (A, H), 0 (all
    documents alike) to 1 (one document takes everything). A row of NaN alone counts as 0.
    """
    shares = normalise(importance, "share")
    missing = np.isnan(shares)
    largest = np.where(missing, -np.inf, shares).max(axis=-1)
    smallest = np.where(missing, np.inf, shares).min(axis=-1)
    differences = np.where(missing.all(axis=-1), 0, largest - smallest)
    return np.asarray(differences.mean(axis=-1, dtype=np.float64), dtype=np.float32)


def most_decisive(spreads: FloatArray) -> tuple[int, int]:
    """Layer and head with the largest spread; the first of equals. spreads: (A, H)."""
    layer, head = np.unravel_index(int(spreads.argmax()), spreads.shape)
    return int(layer), int(head)


def importance_caption(
    *,
    method: str,
    layer: int | None,
    head: int | None,
    normalisation: Normalisation,
    dtype: str,
    rows: Literal["document", "token"] = "document",
) -> str:
    """One sentence: layer, head, aggregation and dtype of what is drawn.

    layer, head: from 0; None means the mean over layers or heads.
    """
    place = "mean over layers" if layer is None else f"layer {layer}"
    place += ", mean over heads" if head is None else f", head {head}"
    what = "summed over the query document\u2019s tokens" if rows == "document" else "of each query token"
    measure = (
        "attention mass per key-document token"
        if normalisation == "raw"
        else "attention mass per key-document token as a share of its row"
    )
    return (
        f"{method}, {place}: {measure}, {what}, positions ignored, computed in {dtype}. "
        "Attention weights are not a full explanation of the answer."
    )


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
    if importance is None:
        return empty_panel(NOT_RANKED)
    if len(documents) < 2:
        return empty_panel("There is one document, so there is nothing to rank.")
    values = normalise(importance, normalisation)
    assert values.shape == (len(documents), len(documents))
    largest = _largest(values)
    cells = [
        [
            _importance_cell(q, k, float(values[q, k]), largest, f"query {query.name}, key {key.name}")
            for k, key in enumerate(documents)
        ]
        for q, query in enumerate(documents)
    ]
    return render(
        "importance_table.html",
        documents=documents,
        cells=cells,
        caption=caption,
        selected=selected,
        largest=format_value(largest),
        measure=_VALUE_NAMES[normalisation],
        ramp=", ".join(CIVIDIS),
    )


def _importance_cell(query: int, key: int, value: float, largest: float, pair: str) -> _ImportanceCell:
    if np.isnan(value):
        reason = "a document is not ranked against itself" if query == key else "masked"
        return _ImportanceCell(query, key, "", f"{pair}: {reason}", "", "")
    fill = ramp_color(CIVIDIS, value / largest)
    return _ImportanceCell(query, key, format_value(value), f"{pair}: {value:.6g}", fill, ink_on(fill))


def importance_figure(
    importance: FloatArray | None,
    tokens: Sequence[Token],
    documents: Sequence[Segment],
    *,
    normalisation: Normalisation = "raw",
) -> go.Figure:
    """Heatmap: how important each suffix or generated token (down) finds each document (across).

    importance: float32 (Q, D); None gives a figure that says so. Colour: cividis from zero. Of more than
    ROW_LIMIT tokens the last are drawn, and the axis title says so.
    """
    if importance is None:
        return empty_figure(NOT_RANKED)
    if not len(tokens):
        return empty_figure("No token has been read or written yet.")
    assert importance.shape == (len(tokens), len(documents))
    values = np.ascontiguousarray(normalise(importance, normalisation)[-ROW_LIMIT:])
    shown = list(tokens)[-ROW_LIMIT:]
    heatmap = go.Heatmap(
        z=values,
        x=[plotly_text(segment.label) for segment in documents],
        y=[plotly_text(f"{token.segment.label} {token.offset + 1} \u00b7 {token.label}") for token in shown],
        zmin=0,
        zmax=_largest(values),
        colorscale=plotly_scale(CIVIDIS),
        colorbar=color_bar("importance" if normalisation == "raw" else "share of the row"),
        xgap=1,
        ygap=1,
        zsmooth=False,
        hovertemplate="query token %{y}<br>key document %{x}<br>importance %{z:.4g}<extra></extra>",
    )
    title = (
        "query token" if len(shown) == len(tokens) else f"query token (last {len(shown)} of {len(tokens)})"
    )
    figure = base_figure(
        heatmap, height=_FRAME_HEIGHT + max(20 * len(shown), 80), x_title="key document", y_title=title
    )
    figure.update_xaxes(type="category", dtick=1)
    figure.update_yaxes(type="category", dtick=1)
    return figure


def spread_figure(
    spreads: FloatArray | None, *, layer: int | None = None, head: int | None = None
) -> go.Figure:
    """Heatmap, layers down and heads across: how decisive each head is; the chosen one is outlined.

    spreads: float32 (A, H) from `spread`; None gives a figure that says so.
    """
    if spreads is None:
        return empty_figure(NOT_RANKED)
    num_layers, num_heads = spreads.shape
    heatmap = go.Heatmap(
        z=np.ascontiguousarray(spreads, dtype=np.float32),
        zmin=0,
        zmax=_largest(spreads),
        colorscale=plotly_scale(CIVIDIS),
        colorbar=color_bar("spread of shares (0 = all alike)"),
        xgap=1,
        ygap=1,
        zsmooth=False,
        hovertemplate="layer %{y}, head %{x}<br>spread %{z:.3f}<extra></extra>",
    )
    figure = base_figure(
        heatmap, height=_FRAME_HEIGHT + max(14 * num_layers, 120), x_title="head", y_title="layer"
    )
    figure.update_xaxes(dtick=1 if num_heads <= 16 else 4)
    figure.update_yaxes(dtick=2 if num_layers <= 40 else 5)
    if layer is not None or head is not None:
        x0, x1 = (-0.5, num_heads - 0.5) if head is None else (head - 0.5, head + 0.5)
        y0, y1 = (-0.5, num_layers - 0.5) if layer is None else (layer - 0.5, layer + 0.5)
        # Two outlines, so that one shows on every colour of the ramp.
        for width, color in ((4, "#000000"), (2, "#FFFFFF")):
            figure.add_shape(type="rect", x0=x0, x1=x1, y0=y0, y1=y1, line={"width": width, "color": color})
    return figure


def _largest(values: FloatArray) -> float:
    """End of the colour scale: the largest value; 1 if there is none or all are zero."""
    largest = float(np.nanmax(values)) if np.isfinite(values).any() else 0.0
    return largest or 1.0


def empty_panel(sentence: str) -> str:
    """HTML that only says why there is nothing to draw."""
    return render("empty.html", sentence=sentence)
