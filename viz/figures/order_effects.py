"""Figure of the two effects that move vanilla over the slots: RoPE, and causal attention."""

import numpy as np
import plotly.graph_objects as go

import pine_engine as pine
from viz.figures.frame import new_figure
from viz.theme import line_style, method_number


def plot_order_effects(effects: "pine.OrderEffects") -> go.Figure:
    """Plot vanilla's log-probability minus its mean, and the two effects that add up to it, as lines.

    x counts slots from 1; y is in nats, float32 (S,), never NaN.

    Args:
        effects: Effects by slot, from `order_effects`.
    """
    figure = new_figure(
        name="rope-and-causal-attention",
        title="Effects of RoPE and of causal attention on vanilla",
        caption="Deviation from each line’s mean. The two effects sum to vanilla.",
        height=360,
    )
    parts = [
        ("vanilla", "Vanilla", effects.total),
        ("nia", "RoPE (NIA)", effects.rope),
        ("", "causal attention", effects.causal),
    ]
    for method, name, values in parts:
        figure.add_scatter(
            x=list(range(1, len(values) + 1)),
            y=np.array(values, dtype=np.float32),
            name=name,
            **line_style(method_number(method)),
            hovertemplate="%{fullData.name}, slot %{x}: %{y:.4g} nats<extra></extra>",
        )
    figure.update_xaxes(title="slot", dtick=1 if len(effects.total) <= 20 else 5)
    figure.update_yaxes(title="deviation from mean (nats)", showgrid=True, zeroline=True)
    return figure
