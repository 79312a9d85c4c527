"""Means over the slots of the answer or over kinds of rows, with their intervals: a line or bars a method."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go

from viz.figures.answer_position import line
from viz.figures.frame import new_figure, plain
from viz.theme import LINES

if TYPE_CHECKING:
    from pine_engine.evaluation.report.tables import Curve, CurveLine

_HEIGHT = 400


def plot_bias_curve(curves: "Curve | Sequence[Curve]") -> go.Figure:
    """Lines (or bars) of one or more curves below each other, with 95 % intervals where there are some.

    curves: of a report of measurements; places across, a line for each method, levels for what stands for all
    places, and areas between lines.

    y is in the unit of the curve, float32 (P,) for each line, NaN where nothing was measured.
    """
    curves = list(curves) if isinstance(curves, Sequence) else [curves]
    gap = 0.22 / len(curves) if len(curves) > 1 else 0
    high = (1 - gap * (len(curves) - 1)) / len(curves)
    figure = new_figure(
        name=curves[0].name,
        title=plain(curves[0].title),
        caption=curves[0].note,
        height=_HEIGHT * len(curves),
        barmode="group",
    )
    seen: set[str] = set()
    for number, curve in enumerate(curves):
        axis = "" if not number else str(number + 1)
        top = 1 - number * (high + gap)
        figure.update_layout(
            {
                f"xaxis{axis}": {
                    "title": plain(curve.x_title),
                    "anchor": f"y{axis}",
                    "type": "category",
                    "range": [-0.5, len(curve.places) - 0.5],
                },
                f"yaxis{axis}": {
                    "title": plain(curve.y_title),
                    "domain": [max(top - high, 0), top],
                    "anchor": f"x{axis}",
                    "showgrid": True,
                },
            }
        )
        _add_curve(figure, curve, {"xaxis": f"x{axis}", "yaxis": f"y{axis}"}, seen)
    return figure


def _add_curve(figure: go.Figure, curve: "Curve", axes: dict[str, str], seen: set[str]) -> None:
    places = [plain(place) for place in curve.places]
    for area in curve.areas:
        _add_area(figure, area.label, area.start, area.end, places, axes)
    for each in curve.lines:
        name = plain(each.label)
        shared = {
            **axes,
            "x": places,
            "y": np.array(each.values, dtype=np.float32),
            "error_y": _error(each),
            "legendgroup": name,
            "showlegend": name not in seen,
            "hovertemplate": "%{fullData.name}, %{x}: %{y:.4g}<extra></extra>",
        }
        if curve.has_bars:
            figure.add_bar(**shared, name=name, marker={"color": LINES[each.mark % len(LINES)]})
        else:
            figure.add_scatter(**shared, **line(each.mark, name))
        seen.add(name)
    for level in curve.levels:
        figure.add_scatter(
            **axes,
            x=places,
            y=np.full(len(places), level.value, dtype=np.float32),
            name=plain(level.label),
            mode="lines",
            line={"color": LINES[level.mark % len(LINES)], "width": 1},
            hovertemplate="%{fullData.name}: %{y:.4g}<extra></extra>",
        )


def _add_area(
    figure: go.Figure,
    label: str,
    start: Sequence[float | None],
    end: Sequence[float | None],
    places: Sequence[str],
    axes: dict[str, str],
) -> None:
    for values, fill in ((start, None), (end, "tonexty")):
        figure.add_scatter(
            **axes,
            x=list(places),
            y=np.array(values, dtype=np.float32),
            name=plain(label),
            mode="lines",
            line={"width": 0},
            fill=fill,
            fillcolor="rgba(107,114,128,0.2)",
            showlegend=fill is not None,
            hoverinfo="skip",
        )


def _error(each: "CurveLine") -> dict[str, Any] | None:
    """The bars of 95 % intervals, none where an end is not finite."""
    if not any(each.intervals):
        return None
    values = np.array(each.values, dtype=np.float64)
    ends = np.array([ends or (np.nan, np.nan) for ends in each.intervals], dtype=np.float64)
    sizes = np.nan_to_num(np.abs(ends - values[:, None]), nan=0, posinf=0).astype(np.float32)
    return {
        "type": "data",
        "symmetric": False,
        "array": sizes[:, 1],
        "arrayminus": sizes[:, 0],
        "thickness": 1.2,
        "width": 4,
    }
