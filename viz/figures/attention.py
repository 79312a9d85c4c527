"""Figure of the attention between all tokens of a prompt, one panel per method."""

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go

import pine_engine as pine
from viz.figures.frame import FloatArray, method_labels, new_figure
from viz.figures.panels import add_panels, prompt_parts

MIN_WEIGHT = 1e-6  # smaller weights are drawn as this

_TICKS = {-6: "1e-6", -5: "1e-5", -4: "1e-4", -3: "0.001", -2: "0.01", -1: "0.1", 0: "1"}


def plot_attention(
    weights: FloatArray | Mapping[str, FloatArray],
    layout: "pine.TokenLayout",
    *,
    with_sink: bool = False,
    query: int | None = None,
    order: Sequence[int] | None = None,
    labels: Mapping[str, str] | None = None,
) -> go.Figure:
    """Plot the attention of one layer and head as heatmaps, queries in rows, keys in columns.

    z is log10 of the weights, at least -6; NaN where masked, and in the first column without the sink. In
    prompts of more tokens than cells, a cell is the maximum of its weights. The panels zoom together.

    Args:
        weights: float32 (N, N), NaN where masked, of the N tokens of the prompt and of the traced answer, as
            in the `TokenWeights` of a whole prompt; or several by method.
        layout: Token layout of the prompt.
        with_sink: Include the first token as a key, which takes most of the attention of most heads.
        query: Index of a token whose row is marked.
        order: Document, as entered, in each slot.
        labels: Labels of the methods.
    """
    by_method = weights if isinstance(weights, Mapping) else {"attention": weights}
    matrices = [_attention_info(matrix, with_sink=with_sink) for matrix in by_method.values()]
    figure = new_figure(
        name="attention",
        title="Token-level attention",
        caption="Rows: queries. Columns: keys. Gray: masked. Look for a document whose columns are dark in "
        "the last rows. Panels zoom together.",
        height=640,
    )
    add_panels(
        figure,
        matrices,
        method_labels(list(by_method), labels),
        prompt_parts(layout, len(matrices[0]), order),
        hover="query %{y}, key %{x}<br>log10 attention %{z:.2f}",
        query=query,
        columns=2,
    )
    visible = np.concatenate([matrix[~np.isnan(matrix)] for matrix in matrices])
    low, high = np.percentile(visible, [5, 99.9]) if visible.size else (-6, 0)
    ticks = {"tickvals": list(_TICKS), "ticktext": list(_TICKS.values())}
    color_bar = {"title": {"text": "weight"}, **ticks}
    figure.update_layout(coloraxis={"cmin": float(low), "cmax": float(high), "colorbar": color_bar})
    return figure


def _attention_info(weights: FloatArray, *, with_sink: bool) -> FloatArray:
    """Return log10 of weights (Q, K), NaN where masked."""
    logs = np.log10(np.maximum(weights, MIN_WEIGHT)).astype(np.float32)  # maximum keeps NaN
    if not with_sink:
        logs[:, 0] = np.nan
    return logs
