"""Figure of the log-probability of an answer in each document order, one row per method."""

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go

import pine_engine as pine
from viz.drawing.identity import order_name
from viz.figures.frame import FloatArray, method_labels, new_figure
from viz.theme import line_style, method_number


def plot_logprob_by_order(
    rows: "Sequence[pine.OrderResult]", *, labels: Mapping[str, str] | None = None
) -> go.Figure:
    """Plot the log-probability of each method's answer of the first order, in every order, as dots.

    x is in nats, float32 (R,) for each method, NaN where its first answer is empty.

    Args:
        rows: Orders, as in `plot_shuffle`.
        labels: Labels of the methods.
    """
    methods = list(rows[0].comparisons) if rows else []
    figure = new_figure(
        name="order-spread",
        title="Log-probability of the first order’s answer, by order",
        caption="One dot per order. Order-invariant methods show a single dot.",
        height=110 + 44 * max(len(methods), 1),
        showlegend=False,
        margin={"b": 16},
    )
    for method, name in zip(methods, method_labels(methods, labels), strict=True):
        numbers, logprobs = _logprob_by_order_info(rows, method)
        figure.add_scatter(
            x=logprobs,
            y=[name] * len(numbers),
            mode="markers",
            name=name,
            marker={**line_style(method_number(method))["marker"], "size": 11, "opacity": 0.65},
            customdata=[order_name(rows[number].order) for number in numbers],
            hovertemplate="%{y}, order %{customdata}: %{x:.4g} nats<extra></extra>",
            meta={"x": [{"tried": number, "method": method} for number in numbers]},
        )
    figure.update_yaxes(autorange="reversed", type="category")
    figure.update_xaxes(title="log-probability (nats)", showgrid=True)
    return figure


def _logprob_by_order_info(rows: "Sequence[pine.OrderResult]", method: str) -> tuple[list[int], FloatArray]:
    """Return the indices of the orders that have the method, and the log-probabilities."""
    numbers = [number for number, row in enumerate(rows) if method in row.comparisons]
    values = [rows[number].comparisons[method].reference_logprob for number in numbers]
    logprobs = np.array(values, dtype=np.float32)
    return numbers, logprobs if rows[0].comparisons[method].text else np.full_like(logprobs, np.nan)
