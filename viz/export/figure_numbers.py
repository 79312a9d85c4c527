"""The numbers of a figure as a table, the same that viz/drawing/figures.js shows below it."""

import re
from collections.abc import Iterator
from html import unescape
from typing import Any

import numpy as np
import plotly.graph_objects as go

from viz.drawing.numbers import plain_values
from viz.drawing.picture import Numbers, Value
from viz.export.standalone import NamedNumbers


def figure_numbers(figure: go.Figure) -> NamedNumbers:
    """A row for each row of a matrix, or for each bar or point; None where there is NaN."""
    meta, layout = figure.layout.meta, figure.layout
    if figure.data[0].type == "heatmap":
        first = figure.data[0]
        across = _axis_values(first, "x", first.z.shape[1])
        columns = ("", "row", *(str(_tick(layout, first.xaxis or "x", value)) for value in across))
        rows = [row for trace in figure.data for row in _map_rows(layout, trace)]
    else:
        has_starts = any(trace.type == "bar" and trace.base is not None for trace in figure.data)
        named = layout.xaxis.title.text or "x", layout.yaxis.title.text or "y"
        columns = ("", "length" if has_starts else named[0], named[1], *(["begins at"] if has_starts else []))
        rows = [row for trace in figure.data for row in _point_rows(layout, trace, has_starts=has_starts)]
    return NamedNumbers(meta["name"], meta["caption"], Numbers(columns, tuple(rows)))


def _map_rows(layout: go.Layout, trace: go.Heatmap) -> Iterator[tuple[Value, ...]]:
    down = _axis_values(trace, "y", len(trace.z))
    for value, row in zip(down, np.asarray(trace.z, dtype=np.float32), strict=True):
        yield (_text(trace.name or ""), _tick(layout, trace.yaxis or "y", value), *plain_values(row))


def _point_rows(layout: go.Layout, trace: Any, *, has_starts: bool) -> Iterator[tuple[Value, ...]]:
    bases = getattr(trace, "base", None)
    for index, (x, y) in enumerate(zip(trace.x, trace.y, strict=True)):
        starts = [_plain(None if bases is None else bases[index])] if has_starts else []
        yield (_text(trace.name or ""), _plain(x), _tick(layout, trace.yaxis or "y", y), *starts)


def _axis_values(trace: go.Heatmap, axis: str, count: int) -> list[Any]:
    """What stands on the axis for each column or row."""
    given = trace[axis]
    if given is not None:
        return list(given)
    start, step = trace[f"{axis}0"] or 0, trace[f"d{axis}"] or 1
    return [start + index * step for index in range(count)]


def _tick(layout: go.Layout, name: str, value: Any) -> Value:
    """What the axis writes at a value."""
    axis = layout[f"{name[0]}axis{name[1:]}"]
    ticks = dict(zip(axis.tickvals, axis.ticktext, strict=True)) if axis.ticktext else {}
    return _plain(ticks.get(value, value))


def _plain(value: Any) -> Value:
    """A value of a figure as CSV and JSON have it."""
    if isinstance(value, np.generic):
        value = plain_values(np.array([value]))[0] if isinstance(value, np.floating) else value.item()
    if isinstance(value, float) and np.isnan(value):
        return None
    plain: Value = _text(value) if isinstance(value, str) else value
    return plain


def _text(written: str) -> str:
    """Without the markup of plotly."""
    return unescape(re.sub(r"<[^>]*>", " ", written).strip())
