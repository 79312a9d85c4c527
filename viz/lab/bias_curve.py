"""Means and intervals over the slots of the answer or over kinds of examples: a line or bar per method."""

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from viz.drawing.text import format_short
from viz.figures.frame import new_figure, plain
from viz.theme import DASHES, bar_pattern, line_color, line_style

if TYPE_CHECKING:
    from pine_engine.lab.evaluation.intervals import Estimate
    from pine_engine.lab.evaluation.report.tables import Curve, CurveLine

_HEIGHT = 400
_LEGEND_ROW, _FREE_LEGEND_ROWS = 30, 6  # pixels on a narrow screen, and rows for which _HEIGHT has space
_AREAS = (("rgba(107,114,128,0.25)", None), ("rgba(183,159,0,0.6)", "|"))  # colors and patterns


def plot_bias_curve(curves: "Curve | Sequence[Curve]") -> go.Figure:
    """Plot lines (or bars) of one or more curves below each other, with 95% intervals where there are some.

    y has the unit of the curve; float32 (P,) for each line, NaN where nothing was measured.

    Args:
        curves: Curves of an evaluation report: places on the x axis, a line for each method, levels for
            values that hold for all places, and areas between two lines, of which the second is hatched.
    """
    curves = list(curves) if isinstance(curves, Sequence) else [curves]
    gap = 0.22 / len(curves) if len(curves) > 1 else 0
    high = (1 - gap * (len(curves) - 1)) / len(curves)
    num_rows = max(len(curve.lines) + len(curve.levels) + len(curve.areas) for curve in curves)
    caption = f"Error bars: 95% intervals. {curves[0].note}".strip()
    figure = new_figure(
        name=curves[0].name,
        title=plain(curves[0].title),
        caption=caption if any(map(_has_intervals, curves[0].lines)) else curves[0].note,
        height=_HEIGHT * len(curves) + _LEGEND_ROW * max(0, num_rows - _FREE_LEGEND_ROWS),
        barmode="group",
    )
    if any(_has_intervals(line) for curve in curves for line in curve.lines):
        figure.update_layout(scattermode="group", scattergap=0.7)  # error bars side by side
    names: set[str] = set()
    for number, curve in enumerate(curves):
        axis = str(number + 1) if number else ""
        x, y = f"x{axis}", f"y{axis}"
        top = 1 - number * (high + gap)
        x_range = [-0.5, len(curve.places) - 0.5]
        x_axis = {"title": plain(curve.x_title), "anchor": y, "type": "category", "range": x_range}
        domain = [max(top - high, 0), top]
        y_axis = {"title": plain(curve.y_title), "range": _y_range(curve), "domain": domain, "anchor": x}
        figure.update_layout({f"xaxis{axis}": x_axis, f"yaxis{axis}": y_axis | {"showgrid": True}})
        traces = [*_areas(curve), *_lines(curve, names), *_levels(curve)]
        figure.add_traces([trace.update(xaxis=x, yaxis=y) for trace in traces])
    return figure


def _y_range(curve: "Curve") -> list[float] | None:
    """Return the y range of lines with error bars, which plotly would extend to zero; None otherwise."""
    if curve.has_bars or not any(map(_has_intervals, curve.lines)):
        return None
    values = [edge for _, start, end in curve.areas for edge in (*start, *end)]
    values += [level.values[0].mean for level in curve.levels if level.values[0]]
    for estimate in (estimate for line in curve.lines for estimate in line.values if estimate):
        values += [estimate.mean, *(estimate.interval or ())]
    finite = [value for value in values if value is not None and math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    margin = 0.06 * (high - low) or 0.5
    return [low - margin, high + margin]


def _has_intervals(line: "CurveLine") -> bool:
    return any(estimate is not None and estimate.interval is not None for estimate in line.values)


def _lines(curve: "Curve", names: set[str]) -> Iterator[go.Scatter | go.Bar]:
    """Return a line, or the bars, of each method; the legend has those not in `names`, and they are added."""
    for number, line in enumerate(curve.lines):
        name = plain(line.label)
        means = np.array([estimate.mean if estimate else np.nan for estimate in line.values])
        options: dict[str, Any] = {
            "x": list(map(plain, curve.places)),
            "y": means.astype(np.float32),
            "error_y": _error_bars(line, means) if _has_intervals(line) else None,
            "name": name,
            "legendgroup": name,
            "offsetgroup": str(number),
            "showlegend": name not in names,
            "customdata": list(map(_numbers, line.values)),
            "hovertemplate": "%{fullData.name}, %{x}: %{customdata}<extra></extra>",
        }
        names.add(name)
        if curve.has_bars:
            color = line_color(line.mark)
            pattern = {"shape": bar_pattern(line.mark), "size": 7}
            border = {"color": color, "width": 1}
            marker = {"color": color, "pattern": pattern, "opacity": 0.6, "line": border}
            yield go.Bar(**options, marker=marker)
        else:
            yield go.Scatter(**options, **line_style(line.mark))


def _error_bars(line: "CurveLine", means: NDArray[np.float64]) -> dict[str, Any]:
    """Return the error bars of a line, none where an end is not finite."""
    ends = np.array([(estimate and estimate.interval) or (np.nan, np.nan) for estimate in line.values])
    sizes = np.nan_to_num(np.abs(ends - means[:, None]), nan=0, posinf=0).astype(np.float32)
    below, above = sizes.T
    style = {"type": "data", "symmetric": False, "thickness": 1.2, "width": 4}
    return style | {"array": above, "arrayminus": below}


def _levels(curve: "Curve") -> Iterator[go.Scatter]:
    """Return a thin line without markers, in the color and dashes of the method, for each level."""
    for level in curve.levels:
        (estimate,) = level.values
        assert estimate is not None
        dash = DASHES[level.mark % len(DASHES)]
        yield go.Scatter(
            x=list(map(plain, curve.places)),
            y=np.full(len(curve.places), estimate.mean, dtype=np.float32),
            name=plain(level.label),
            mode="lines",
            line={"color": line_color(level.mark), "width": 1, "dash": dash},
            offsetgroup="0",
            hovertemplate=f"%{{fullData.name}}: {_numbers(estimate)}<extra></extra>",
        )


def _areas(curve: "Curve") -> Iterator[go.Scatter]:
    """Return both edges of an area for each run of known places, because plotly fills across missing ones."""
    for (label, *ends), (color, pattern) in zip(curve.areas, _AREAS, strict=False):
        name = plain(label)
        edges = np.array(ends, dtype=np.float32)
        known = np.flatnonzero(np.isfinite(edges).all(axis=0))
        runs = [run for run in np.split(known, np.flatnonzero(np.diff(known) > 1) + 1) if run.size]
        for number, run in enumerate(runs):
            start, end = edges[:, run]
            x = [plain(curve.places[index]) for index in run]
            options = {"x": x, "mode": "lines", "legendgroup": name, "line_width": 0}
            yield go.Scatter(**options, y=start, name=f"{name}, from", showlegend=False, hoverinfo="skip")
            yield go.Scatter(
                **options,
                y=end,
                name=name,
                showlegend=number == 0,
                fill="tonexty",
                fillcolor=color,
                fillpattern={"shape": pattern, "size": 6} if pattern else None,
                customdata=end - start,
                hovertemplate="%{fullData.name}, %{x}: %{customdata:+.2r}<extra></extra>",
            )


def _numbers(estimate: "Estimate | None") -> str:
    """Return mean and interval with the digits of the tables of a report; "" for None."""
    if estimate is None:
        return ""
    shown = "{:.2f}".format if estimate.metric == "logprob" else format_short
    interval = estimate.interval and f", interval {' to '.join(map(shown, estimate.interval))}"
    return f"{shown(estimate.mean)}{interval or ''}"
