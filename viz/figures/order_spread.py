"""How much the order of the documents changes how likely an answer is: a dot an order, a row a method."""

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go

from viz.drawing.identity import document_letter
from viz.figures.frame import named, new_figure
from viz.figures.shuffle_matrix import OrderTried
from viz.theme import LINES, SYMBOLS


def plot_logprob_by_order(
    rows: Sequence[OrderTried], *, labels: Mapping[str, str] | None = None
) -> go.Figure:
    """Dots: the log-probability of each method's own answer of the first order, in every order.

    rows: as plot_shuffle takes them. labels: of the methods.

    x is in nats, float32 (R,) for each method, NaN where its first answer is empty: then there is nothing to
    be likely.
    """
    methods = list(rows[0].cells) if rows else []
    figure = new_figure(
        name="order-spread",
        title="How likely the first row’s answer is in every order",
        caption="A dot an order; one that does not depend on the order has all dots on one spot.",
        height=110 + 44 * max(len(methods), 1),
        showlegend=False,
        margin={"b": 16},
    )
    for place, (method, name) in enumerate(zip(methods, named(methods, labels), strict=True)):
        tried = [(number, row) for number, row in enumerate(rows) if method in row.cells]
        is_empty = not rows[0].cells[method].text
        figure.add_scatter(
            x=np.array(
                [np.nan if is_empty else row.cells[method].reference_logprob for _, row in tried],
                dtype=np.float32,
            ),
            y=[name] * len(tried),
            mode="markers",
            name=name,
            marker={
                "size": 11,
                "symbol": SYMBOLS[place % len(SYMBOLS)],
                "color": LINES[place % len(LINES)],
                "opacity": 0.65,
            },
            customdata=[" ".join(map(document_letter, row.order)) for _, row in tried],
            hovertemplate="%{y}, order %{customdata}: %{x:.4g} nats<extra></extra>",
            meta={"x": [{"tried": number, "method": method} for number, _ in tried]},
        )
    figure.update_yaxes(autorange="reversed", type="category")
    figure.update_xaxes(title="log-probability (nats)", showgrid=True)
    return figure
