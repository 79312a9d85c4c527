"""Where the answer stands: how likely an answer is with one document in each slot, a line a method."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go

from viz.figures.frame import named, new_figure
from viz.theme import DASHES, LINES, SYMBOLS

if TYPE_CHECKING:
    from pine_engine.invariance.position_sweep import SlotScored

_FILLS = ("", "-open", "-open-dot")

_NUM_SYMBOLS = len(SYMBOLS) * len(_FILLS)


def plot_position_sweep(
    steps: "Sequence[SlotScored]",
    *,
    slots: int | None = None,
    labels: Mapping[str, str] | None = None,
) -> go.Figure:
    """Lines: the log-probability of the answer with the document in each slot, one a method.

    steps: of sweep_document, as far as they have come. slots: how many there will be. labels: of the methods.

    x counts slots from 1; y is in nats, float32 (S,) for each method, never NaN.
    """
    methods = list(steps[0].scores) if steps else []
    figure = new_figure(
        name="where-the-answer-stands",
        title="How likely the answer is with its document in each slot",
        caption="A flat line does not care where the document stands.",
        height=400,
    )
    for place, (method, name) in enumerate(zip(methods, named(methods, labels), strict=True)):
        figure.add_scatter(
            x=[step.slot + 1 for step in steps],
            y=np.array([step.scores[method].total for step in steps], dtype=np.float32),
            name=name,
            **line_style(place),
            hovertemplate="%{fullData.name}, slot %{x}: %{y:.4g} nats<extra></extra>",
            meta={"x": [{"tried": number, "method": method} for number in range(len(steps))]},
        )
    last = slots or len(steps)
    figure.update_xaxes(title="slot", dtick=1 if last <= 20 else 5, range=[0.5, last + 0.5])
    figure.update_yaxes(title="log-probability (nats)", showgrid=True)
    return figure


def line_color(mark: int) -> str:
    """Return the color of the line with that number."""
    return LINES[(mark + mark // _NUM_SYMBOLS) % len(LINES)]


def line_style(mark: int) -> dict[str, Any]:
    """Return mode, line and marker of the line with that number.

    After eight lines the symbols repeat, open, then open with a dot; after 24 they repeat in other colors.
    """
    color = line_color(mark)
    symbol = SYMBOLS[mark % len(SYMBOLS)] + _FILLS[mark // len(SYMBOLS) % len(_FILLS)]
    return {
        "mode": "lines+markers",
        "line": {"color": color, "width": 2, "dash": DASHES[mark % len(DASHES)]},
        "marker": {"color": color, "size": 9, "symbol": symbol},
    }
