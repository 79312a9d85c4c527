"""Attention token by token over a whole prompt, one panel a method."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from viz.figures.frame import named, new_figure
from viz.figures.panels import Parts, add_panels

if TYPE_CHECKING:
    from pine_engine.prompts.layout import TokenLayout

SMALLEST = 1e-6
"""Weights below are drawn as this."""

_TICKS = (-6, -5, -4, -3, -2, -1, 0)
_TICK_TEXTS = ("1e-6", "1e-5", "1e-4", "0.001", "0.01", "0.1", "1")


def plot_attention(
    weights: NDArray[np.float32] | Mapping[str, NDArray[np.float32]],
    layout: "TokenLayout",
    *,
    with_sink: bool = False,
    query: int | None = None,
    order: Sequence[int] | None = None,
    labels: Mapping[str, str] | None = None,
) -> go.Figure:
    """Heatmaps of the attention of one layer and head, queries down and keys across, that zoom together.

    weights: float32 (N, N), NaN where masked, of the N tokens of the prompt and of the answer as far as it
    was read: those of a `TokenWeights` of the whole prompt; or several by method. layout: of the prompt.
    with_sink: whether the first token is drawn as a key, which takes most of the attention of most heads.
    query: a token whose row is marked. order: which document, as entered, stands in each slot. labels: of the
    methods.

    z is log10 of the weights, at least -6; NaN where masked, and in the first column without the sink. Of
    more than `panels.BINS` tokens several are one cell, which has the largest of their weights.
    """
    by_method = weights if isinstance(weights, Mapping) else {"attention": weights}
    matrices = [log_weights(each, with_sink=with_sink) for each in by_method.values()]
    parts = Parts.of(layout, len(matrices[0]), order)
    figure = new_figure(
        name="attention",
        title="Attention, token by token",
        caption="Queries down, keys across; all panels zoom together. Grey: may not be read.",
        height=640,
    )
    add_panels(
        figure,
        matrices,
        named(list(by_method), labels),
        parts,
        hover="query %{y}, key %{x}<br>log10 of the weight %{z:.2f}",
        query=query,
        columns=2,
    )
    seen = np.concatenate([matrix[~np.isnan(matrix)] for matrix in matrices])
    low, high = np.percentile(seen, [5, 99.9]) if seen.size else (-6, 0)
    figure.update_layout(
        coloraxis={
            "cmin": float(low),
            "cmax": float(high),
            "colorbar": {"title": {"text": "weight"}, "tickvals": _TICKS, "ticktext": _TICK_TEXTS},
        }
    )
    return figure


def log_weights(weights: NDArray[np.float32], *, with_sink: bool) -> NDArray[np.float32]:
    """What is drawn of weights (Q, K): log10, NaN where masked; see plot_attention."""
    drawn = np.log10(np.maximum(weights, SMALLEST)).astype(np.float32)  # maximum keeps NaN
    if not with_sink:
        drawn[:, 0] = np.nan
    return drawn
