"""Figure of the layers and heads that decide between documents."""

import numpy as np
import plotly.graph_objects as go

import pine_engine as pine
from viz.figures.frame import FloatArray, add_cells, new_figure, outline, require_attention
from viz.figures.importance import require_importance


def plot_head_decisiveness(
    trace: "pine.Trace", *, layer: int | None = None, head: int | None = None
) -> go.Figure:
    """Plot the decisiveness of each layer (columns) and head (rows) as a heatmap.

    z is float32 (H, A), 0 to 1, never NaN. Decisiveness is the largest minus the smallest share of
    importance, times the share of attention on documents, mean over the tokens of question and answer.

    Args:
        trace: Trace of a method that ranks documents.
        layer: Layer that is outlined, with `head` one cell, alone a column.
        head: Head that is outlined, alone a row.
    """
    values = decisiveness(trace)
    layers, heads = values.shape
    color_bar = {"title": {"text": "decisiveness"}}
    figure = new_figure(
        name="decisive-heads",
        title="Decisiveness of each layer and head",
        caption="Range of importance shares × attention on documents. Look for bright cells: these heads "
        "rank the documents most clearly. Click a cell to select a head.",
        height=150 + 20 * heads,
        coloraxis={"cmin": 0, "cmax": float(values.max()), "colorbar": color_bar},
    )
    add_cells(
        figure,
        values.T,
        np.arange(layers, dtype=np.int16),
        y=np.arange(heads, dtype=np.int16),
        gap=1,
        hover="layer %{x}, head %{y}<br>%{z:.2g}",
        titles=("layer", "head"),
        meta={"x": [{"layer": a} for a in range(layers)], "y": [{"head": h} for h in range(heads)]},
    )
    figure.update_xaxes(dtick=2 if layers > 16 else 1)
    figure.update_yaxes(dtick=1 if heads <= 16 else 4)
    if layer is not None or head is not None:
        columns = (0, layers - 1) if layer is None else (layer, layer)
        rows = (0, heads - 1) if head is None else (head, head)
        figure.add_shape(outline(columns, rows))
    return figure


def decisiveness(trace: "pine.Trace") -> FloatArray:
    """Return the decisiveness of each layer and head, (A, H); see `plot_head_decisiveness`.

    A head that does not attend to documents has 0, however different their importances.
    """
    importance, attention = require_importance(trace.suffix_importance, trace), require_attention(trace)
    # fmax and fmin ignore NaN. The shares of all documents are never computed: a large model has many.
    ranges = np.fmax.reduce(importance, axis=-1) - np.fmin.reduce(importance, axis=-1)
    sums = np.nansum(importance, axis=-1, dtype=np.float64)
    spreads = np.nan_to_num(ranges) / np.where(sums == 0, 1, sums)
    on_documents = attention[..., 1:-1].sum(axis=-1, dtype=np.float64)
    return np.asarray((spreads * on_documents).mean(axis=-1), dtype=np.float32)


def most_decisive(values: FloatArray) -> tuple[int, int]:
    """Return the layer and head with the largest value of (A, H), the first of equal ones."""
    layer, head = np.unravel_index(int(values.argmax()), values.shape)
    return int(layer), int(head)
