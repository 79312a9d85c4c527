"""Theme of all figures: the plotly template "pine", registered on import, and the colors."""

from typing import Any

import plotly.graph_objects as go
import plotly.io as pio

from pine_engine.methods.table import METHODS

TEMPLATE = "pine"

INK, GRID, MASKED = "#1f2937", "rgba(107,114,128,0.35)", "rgba(128,128,128,0.16)"
"""Colors of text and borders, of lines behind marks, and of masked cells."""

ALLOWED, CHOSEN = "#2f78b7", "#e11d48"
"""Colors of cells that may be attended to, and of the selection."""

# Ten even stops of cividis, which looks similar with all kinds of color vision (Nuñez et al. 2018).
CIVIDIS = (
    *("#00224E", "#123570", "#3B496C", "#575D6D", "#707173"),
    *("#8A8678", "#A59C74", "#C3B369", "#E1CC55", "#FEE838"),
)
"""Colors of weights, from low to high."""

BLUES = ("#F2F6FA", "#C9DCEC", "#8DB6D6", "#4A86B8")
"""Colors of cells with texts, from low to high; black has a contrast of at least 5 with each."""

LINES = ("#6B7280", "#8B5CF6", "#7F7F00", "#C026D3", "#15803D", "#0E9AA7", "#B4535B", "#65A30D")
"""Colors of methods, none of a document; at least 3:1 on the light and the dark page."""

SYMBOLS = (
    *("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "pentagon", "star"),
    *("x", "hexagon", "octagon", "hexagram", "bowtie", "hourglass", "star-square", "star-diamond"),
    *("triangle-left", "triangle-right", "triangle-ne", "triangle-se", "triangle-sw", "triangle-nw"),
    *("diamond-tall", "diamond-wide"),
)
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "5px 2px", "2px 4px")
PATTERNS = ("", "/", "x", "-", "|", "\\", "+", ".")
"""Styles of lines and bars by their index: symbols, dashes and patterns identify them without color."""

SIGNS = "●■▲◆▼✚⬟★"
"""The first symbols as characters."""

_FILLS = ("", "-open", "-open-dot", "-dot")

_NUMBERS = {
    name: number for number, method in enumerate(METHODS.values()) for name in (method.name, method.label)
}

_NUM_SHAPES = 8  # symbols until the next fill
_NUM_SYMBOLS = _NUM_SHAPES * len(_FILLS)

CONFIG: dict[str, Any] = {
    "displaylogo": False,
    "showSendToCloud": False,
    "responsive": True,
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d", "toImage"],
}
"""Configuration of plotly.js for every figure, without the button that uploads it."""

_AXIS = {
    **{"showgrid": False, "zeroline": False, "showline": False, "ticks": ""},
    **{"automargin": True, "title_standoff": 8, "gridcolor": GRID},
}

_BELOW = {"orientation": "h", "x": 0, "xanchor": "left", "yref": "container", "y": 0, "yanchor": "bottom"}
"""Place of a legend or a color bar; a figure has one of them."""

pio.templates[TEMPLATE] = go.layout.Template(
    layout={
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": INK},
        "title": {
            **{"x": 0, "xanchor": "left", "xref": "container"},
            **{"y": 1, "yanchor": "top", "yref": "container", "automargin": True},
            **{"pad": {"l": 8, "t": 10, "b": 8}, "font": {"size": 15}},
        },
        "paper_bgcolor": "#ffffff",
        "plot_bgcolor": "#ffffff",
        "colorway": LINES,
        "hoverlabel": {"align": "left", "font": {"family": "ui-monospace, monospace", "size": 12}},
        "margin": {"l": 8, "r": 12, "t": 12, "b": 64},
        "xaxis": _AXIS,
        "yaxis": _AXIS,
        "legend": _BELOW | {"bgcolor": "rgba(0,0,0,0)"},
        "coloraxis": {
            "colorscale": [[index / (len(CIVIDIS) - 1), color] for index, color in enumerate(CIVIDIS)],
            "colorbar": {
                **_BELOW,
                **{"nticks": 4, "tickangle": 0, "thickness": 8, "len": 0.5, "lenmode": "fraction"},
                **{"outlinewidth": 0, "ypad": 4, "title": {"side": "right", "font": {"size": 12}}},
            },
        },
        "modebar": {"orientation": "h", "bgcolor": "rgba(0,0,0,0)"},
        "uirevision": TEMPLATE,
        "dragmode": "zoom",
    },
    data={"heatmap": [go.Heatmap(hoverongaps=False)]},
)


def method_number(name: str, place: int = 0) -> int:
    """Return the index of the style of a method, the same in all figures.

    A name or label may have an addition in parentheses. `place` numbers the styles of other names.
    """
    return _NUMBERS.get(name, _NUMBERS.get(name.rpartition(" (")[0], len(METHODS) + place))


def method_sign(name: str) -> str:
    """Return the symbol of a method as a character."""
    return SIGNS[method_number(name) % len(SIGNS)]


def line_color(index: int) -> str:
    """Return the color of a line."""
    return LINES[(index + index // _NUM_SYMBOLS) % len(LINES)]


def line_style(index: int) -> dict[str, Any]:
    """Return mode, line and marker of a line.

    After eight lines the symbols repeat, open, open with a dot, and with a dot; after 32 in other colors;
    after 256 come other symbols.
    """
    color = line_color(index)
    first = _NUM_SHAPES * (index // (_NUM_SYMBOLS * len(LINES)))
    symbol = SYMBOLS[first + index % _NUM_SHAPES] + _FILLS[index // _NUM_SHAPES % len(_FILLS)]
    return {
        "mode": "lines+markers",
        "line": {"color": color, "width": 2, "dash": DASHES[index % len(DASHES)]},
        "marker": {"color": color, "size": 9, "symbol": symbol},
    }


def bar_pattern(index: int) -> str:
    """Return the pattern of a bar; it differs between bars of the same color."""
    return PATTERNS[(index + index // len(PATTERNS)) % len(PATTERNS)]
