"""What moves vanilla over the slots: RoPE, and causal attention between documents."""

from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go

from viz.figures.answer_position import line_style
from viz.figures.frame import new_figure

if TYPE_CHECKING:
    from pine_engine.invariance.position_sweep import OrderEffects


def plot_order_effects(effects: "OrderEffects") -> go.Figure:
    """Lines: vanilla less its mean, and the two parts whose sum it is in each slot.

    effects: as order_effects makes them. x counts slots from 1; y is in nats, float32 (S,), never NaN.
    """
    figure = new_figure(
        name="rope-and-causal-attention",
        title="What moves vanilla: RoPE, and causal attention",
        caption="Each line less its own mean; in every slot the two parts add up to vanilla.",
        height=360,
    )
    parts = {"Vanilla": effects.total, "RoPE (NIA)": effects.rope, "causal attention": effects.causal}
    for place, (name, values) in enumerate(parts.items()):
        figure.add_scatter(
            x=list(range(1, len(values) + 1)),
            y=np.array(values, dtype=np.float32),
            name=name,
            **line_style(place),
            hovertemplate="%{fullData.name}, slot %{x}: %{y:.4g} nats<extra></extra>",
        )
    figure.update_xaxes(title="slot", dtick=1 if len(effects.total) <= 20 else 5)
    figure.update_yaxes(title="nats above or below the mean", showgrid=True, zeroline=True)
    return figure
