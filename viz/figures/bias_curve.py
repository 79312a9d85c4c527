"""Means and intervals over the slots of the answer or over kinds of examples: a line or bar per method."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go

from viz.figures.frame import new_figure, plain
from viz.theme import DASHES, bar_pattern, line_color, line_style

if TYPE_CHECKING:
    from pine_engine.evaluation.intervals import Estimate
    from pine_engine.evaluation.report.tables import Curve, CurveLine

_HEIGHT = 400

_LEGEND_ROW, _FREE_LEGEND_ROWS = 30, 6
"""Pixels of one row of the legend on a narrow screen, and rows for which _HEIGHT has room."""

_AREAS = (("rgba(107,114,128,0.25)", None), ("rgba(183,159,0,0.6)", "|"))
"""Fill color and pattern of the first and the second area."""


def plot_bias_curve(curves: "Curve | Sequence[Curve]") -> go.Figure:
    """Plot lines (or bars) of one or more curves below each other, with 95 % intervals where there are some.

    Args:
        curves: Curves of an evaluation report: places on the x axis, a line for each method, levels for
            values that hold for all places, and areas between two lines, of which the second is hatched.

    Returns:
        A figure. y has the unit of the curve; float32 (P,) for each line, NaN where nothing was measured.
    """
    curves = list(curves) if isinstance(curves, Sequence) else [curves]
    gap = 0.22 / len(curves) if len(curves) > 1 else 0
    high = (1 - gap * (len(curves) - 1)) / len(curves)
    num_rows = max(len(curve.lines) + len(curve.levels) + len(curve.areas) for curve in curves)
    figure = new_figure(
        name=curves[0].name,
        title=plain(curves[0].title),
        caption=_caption(curves[0]),
        height=_HEIGHT * len(curves) + _LEGEND_ROW * max(0, num_rows - _FREE_LEGEND_ROWS),
        barmode="group",
    )
    if any(map(_has_intervals, curves)):
        figure.update_layout(scattermode="group", scattergap=0.7)  # error bars side by side
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
                    "range": _y_range(curve),
                    "domain": [max(top - high, 0), top],
                    "anchor": f"x{axis}",
                    "showgrid": True,
                },
            }
        )
        _add_curve(figure, curve, {"xaxis": f"x{axis}", "yaxis": f"y{axis}"}, seen)
    return figure


def _y_range(curve: "Curve") -> list[float] | None:
    """Return the y range of lines with error bars, which plotly would extend to zero; None otherwise."""
    if curve.has_bars or not _has_intervals(curve):
        return None
    values = [edge for _, start, end in curve.areas for edge in (*start, *end)]
    for each in (*curve.lines, *curve.levels):
        for one in filter(None, each.values):
            values += [one.mean] if each in curve.levels else [one.mean, *(one.interval or ())]
    finite = [value for value in values if value is not None and math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    margin = 0.06 * (high - low) or 0.5
    return [low - margin, high + margin]


def _has_intervals(curve: "Curve") -> bool:
    return any(map(_intervals, curve.lines))


def _caption(curve: "Curve") -> str:
    """Return the note of the curve, after a sentence on intervals if it has some."""
    bars = "Strokes on the bars" if curve.has_bars else "Error bars"
    return f"{bars}: 95 % intervals. {curve.note}".strip() if _has_intervals(curve) else curve.note


def _add_curve(figure: go.Figure, curve: "Curve", axes: dict[str, str], seen: set[str]) -> None:
    places = [plain(place) for place in curve.places]
    for area, style in zip(curve.areas, _AREAS, strict=False):
        _add_area(figure, area, places, axes, *style)
    for number, each in enumerate(curve.lines):
        name = plain(each.label)
        shared = {
            **axes,
            "x": places,
            "y": np.array([one.mean if one else np.nan for one in each.values], dtype=np.float32),
            "error_y": _error(each),
            "name": name,
            "legendgroup": name,
            "offsetgroup": str(number),
            "showlegend": name not in seen,
            "customdata": [_interval(one) for one in each.values],
            "hovertemplate": "%{fullData.name}, %{x}: %{y:.4g}%{customdata}<extra></extra>",
        }
        if curve.has_bars:
            pattern = {"shape": bar_pattern(each.mark), "size": 7}
            color = line_color(each.mark)
            figure.add_bar(
                **shared,
                marker={
                    "color": color,
                    "pattern": pattern,
                    "line": {"color": color, "width": 1},
                    "opacity": 0.6,
                },
            )
        else:
            figure.add_scatter(**shared, **line_style(each.mark))
        seen.add(name)
    for level in curve.levels:
        _add_level(figure, level, places, axes)


def _add_level(figure: go.Figure, level: "CurveLine", places: Sequence[str], axes: dict[str, str]) -> None:
    """Add a thin line without markers, in the color and dashes of the method."""
    (value,) = level.values
    assert value is not None
    figure.add_scatter(
        **axes,
        x=list(places),
        y=np.full(len(places), value.mean, dtype=np.float32),
        name=plain(level.label),
        mode="lines",
        line={"color": line_color(level.mark), "width": 1, "dash": DASHES[level.mark % len(DASHES)]},
        offsetgroup="0",
        hovertemplate=f"%{{fullData.name}}: %{{y:.4g}}{_interval(value)}<extra></extra>",
    )


def _add_area(
    figure: go.Figure,
    area: tuple[str, Sequence[float | None], Sequence[float | None]],
    places: Sequence[str],
    axes: dict[str, str],
    color: str,
    pattern: str | None,
) -> None:
    """Add both edges of the area for each run of neighboring places at which both are known.

    plotly fills across missing values, hence the runs.
    """
    label, *ends = area
    edges = np.array(ends, dtype=np.float32)
    known = np.flatnonzero(np.isfinite(edges).all(axis=0))
    runs = [run for run in np.split(known, np.flatnonzero(np.diff(known) > 1) + 1) if run.size]
    name = plain(label)
    for number, run in enumerate(runs):
        shared = {**axes, "x": [places[index] for index in run], "mode": "lines", "line": {"width": 0}}
        figure.add_scatter(
            **shared,
            y=edges[0, run],
            name=f"{name}, from",
            showlegend=False,
            hoverinfo="skip",
            legendgroup=name,
        )
        figure.add_scatter(
            **shared,
            y=edges[1, run],
            name=name,
            legendgroup=name,
            showlegend=number == 0,
            fill="tonexty",
            fillcolor=color,
            fillpattern={"shape": pattern, "size": 6} if pattern else None,
            customdata=edges[1, run] - edges[0, run],
            hovertemplate="%{fullData.name}, %{x}: %{customdata:+.4g}<extra></extra>",
        )


def _interval(estimate: "Estimate | None") -> str:
    """Return the ends of an interval for hover text."""
    if estimate is None or estimate.interval is None:
        return ""
    low, high = estimate.interval
    return f", interval {low:.4g} to {high:.4g}"


def _intervals(each: "CurveLine") -> bool:
    return any(one is not None and one.interval is not None for one in each.values)


def _error(each: "CurveLine") -> dict[str, Any] | None:
    """Return the error bars of a line, none where an end is not finite."""
    if not _intervals(each):
        return None
    values = np.array([one.mean if one else np.nan for one in each.values])
    ends = np.array([one.interval or (np.nan, np.nan) if one else (np.nan, np.nan) for one in each.values])
    sizes = np.nan_to_num(np.abs(ends - values[:, None]), nan=0, posinf=0).astype(np.float32)
    return {
        "type": "data",
        "symmetric": False,
        "array": sizes[:, 1],
        "arrayminus": sizes[:, 0],
        "thickness": 1.2,
        "width": 4,
    }
