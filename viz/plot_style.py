"""How every plotly figure looks: no background, explicit height, text legible in light and dark."""

import html
import textwrap
from typing import Any

import plotly.graph_objects as go

# Between black and white, so legible on both; where figures.css is loaded it sets the theme's own colour.
INK = "#767676"
_GRID = "rgba(128,128,128,0.35)"


def base_figure(*traces: Any, height: int, x_title: str = "", y_title: str = "") -> go.Figure:
    """A figure with transparent backgrounds and titled axes, keys across on top, queries down.

    height: pixels. The first row is at the top.
    """
    axis = {
        "showgrid": False,
        "zeroline": False,
        "automargin": True,
        "linecolor": _GRID,
        "tickcolor": _GRID,
        "ticks": "",
        "constrain": "domain",
    }
    figure = go.Figure(data=list(traces))
    figure.update_layout(
        template="none",
        height=height,
        margin={"l": 16, "r": 16, "t": 16, "b": 16},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": "system-ui, sans-serif", "size": 13, "color": INK},
        hoverlabel={"font": {"family": "ui-monospace, monospace", "size": 13}, "align": "left"},
        xaxis={**axis, "title": {"text": x_title, "standoff": 12}, "side": "top"},
        yaxis={**axis, "title": {"text": y_title, "standoff": 12}, "autorange": "reversed"},
        dragmode=False,
    )
    return figure


def empty_figure(sentence: str, *, height: int = 160) -> go.Figure:
    """A figure that only says why there is nothing to draw."""
    figure = base_figure(height=height)
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False)
    lines = textwrap.wrap(sentence, 42)
    figure.add_annotation(
        text="<br>".join(map(plotly_text, lines)), x=0.5, y=0.5, xref="paper", yref="paper", showarrow=False
    )
    return figure


def plotly_text(text: str) -> str:
    """Text that plotly draws as it is: it reads a little HTML, so untrusted text is escaped."""
    return html.escape(text, quote=False)


def color_bar(title: str) -> dict[str, Any]:
    """Colour bar with a title, slim and under the figure, so that phones keep the width."""
    return {
        "title": {"text": title, "side": "top"},
        "orientation": "h",
        "x": 0,
        "xanchor": "left",
        "y": 0,
        "yanchor": "top",
        "ypad": 16,
        "len": 1.0,
        "thickness": 10,
        "outlinewidth": 0,
    }


COLOR_BAR_HEIGHT = 80
"""Pixels that color_bar takes below the cells."""
