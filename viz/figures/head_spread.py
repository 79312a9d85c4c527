"""Which layers and heads decide between documents."""

from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go

from viz.figures.frame import new_figure, outline
from viz.figures.importance import decisiveness

if TYPE_CHECKING:
    from pine_engine.attention.trace import Trace


def plot_head_decisiveness(trace: "Trace", *, layer: int | None = None, head: int | None = None) -> go.Figure:
    """Heatmap of how much each layer (across) and head (down) prefers one document to another.

    trace: of a method that ranks. layer, head: the chosen cell, which is outlined; of one alone, all of its
    column or row.

    z is float32 (H, A), see `importance.decisiveness`: the largest less the smallest share of importance,
    times the share of attention that documents get, mean over the tokens of question and answer; 0 to 1,
    never NaN.
    """
    values = decisiveness(trace)
    layers, heads = values.shape
    figure = new_figure(
        name="decisive-heads",
        title="Which heads decide",
        caption="How much of its attention a head moves by preferring a document. A click chooses it.",
        height=150 + 20 * heads,
        coloraxis={
            "cmin": 0,
            "cmax": float(values.max()),
            "colorbar": {"title": {"text": "spread × attention on documents"}},
        },
    )
    figure.add_heatmap(
        z=values.T,
        x=np.arange(layers, dtype=np.int16),
        y=np.arange(heads, dtype=np.int16),
        coloraxis="coloraxis",
        xgap=1,
        ygap=1,
        hovertemplate="layer %{x}, head %{y}<br>%{z:.3g}<extra></extra>",
        meta={"x": [{"layer": a} for a in range(layers)], "y": [{"head": h} for h in range(heads)]},
    )
    figure.update_xaxes(title="layer", side="top", dtick=2 if layers > 16 else 1)
    figure.update_yaxes(title="head", autorange="reversed", dtick=1 if heads <= 16 else 4)
    if layer is not None or head is not None:
        across = (0, layers - 1) if layer is None else (layer, layer)
        down = (0, heads - 1) if head is None else (head, head)
        figure.add_shape(outline(across, down))
    return figure
