"""Figures as JSON for the browser, as HTML documents that need no server and no network, and as CSV."""

import base64
import csv
import io
import json
import re
from collections.abc import Iterator, Sequence
from html import unescape
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.utils import PlotlyJSONEncoder

from viz.drawing.markup import render
from viz.drawing.pictures import Numbers, Value
from viz.drawing.text import plain_values
from viz.theme import CONFIG

MIN_PACKED_CELLS = 10_000

LEVELS = 254  # steps between the smallest and the largest value; 0 is NaN

# Templates escape every value, so that an attribute ends at the next '"', and JSON in them has no "<".
_PICK = re.compile(r' data-pick="[^"]*"')
_CLICK = re.compile(r"\. Click (a cell )?to (select|compare) [^.\"<]*\.")


def packed_json(figure: go.Figure) -> str:
    """Return the figure as viz/drawing/figures.js draws it; it can be inserted into a script of HTML.

    A matrix of at least MIN_PACKED_CELLS is sent as levels (uint8, one more than the step, 0 for NaN) with
    the smallest and the largest value in `meta.levels`: colors have no more steps, and it takes a quarter.
    """
    content: dict[str, Any] = {**figure.to_plotly_json(), "config": CONFIG}
    for trace, packed in zip(figure.data, content["data"], strict=True):
        if trace.type == "heatmap" and np.size(trace.z) >= MIN_PACKED_CELLS:
            levels, ends = _levels(np.asarray(trace.z, dtype=np.float64))
            packed["z"] = {
                "dtype": "u1",
                "bdata": base64.b64encode(levels.tobytes()).decode(),
                "shape": ", ".join(map(str, levels.shape)),
            }
            packed["meta"] = {**(trace.meta or {}), "levels": ends}
    return json.dumps(content, cls=PlotlyJSONEncoder, separators=(",", ":")).replace("<", "\\u003c")


def _levels(values: NDArray[np.float64]) -> tuple[NDArray[np.uint8], list[float]]:
    """Return the levels of values, and the smallest and the largest value."""
    known = values[~np.isnan(values)]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 0.0)
    steps = np.rint((values - low) / ((high - low) or 1) * LEVELS)
    return np.where(np.isnan(steps), 0, np.nan_to_num(steps) + 1).astype(np.uint8), [low, high]


def strip_interaction(html: str) -> str:
    """Remove selections by click, and the sentences about them, which work on the page only."""
    return _CLICK.sub(".", _PICK.sub("", html))


def pictures_page(
    sections: Sequence[tuple[str, str, Sequence[str]]],
    *,
    run: str,
    title: str,
    about: str,
    styles: str,
    scripts: Sequence[str],
) -> str:
    """Render a document of pictures, `about` the origin of its numbers.

    A section is a heading, HTML of pictures, and figures from `packed_json`. `run` is escaped HTML of the
    question, the documents and the answers. Styles and scripts are inserted without escaping; with figures,
    plotly.js is the first script.
    """
    assert "</style" not in styles and not any("</script" in script for script in scripts)
    static = [
        (heading, strip_interaction(html), list(map(strip_interaction, figures)))
        for heading, html, figures in sections
    ]
    texts = {"title": title, "about": about, "run": run}
    return render("pictures_page.html", sections=static, styles=styles, scripts=scripts, **texts)


# Numbers

_NUMBERS = re.compile(r'<div class="pine-numbers"[^>]*>(.*?)</div>', re.DOTALL)


def picture_numbers(html: str) -> list[Numbers]:
    """Return the numbers of every picture that viz.drawing.pictures rendered into some HTML."""
    return [
        Numbers(
            tuple(content["columns"]), tuple(map(tuple, content["rows"])), content["name"], content["caption"]
        )
        for content in map(json.loads, _NUMBERS.findall(html))
    ]


def figure_numbers(figure: go.Figure) -> Numbers:
    """Return a row per row of a matrix, or per bar or point; None where there is NaN."""
    layout = figure.layout
    if figure.data[0].type == "heatmap":
        first = figure.data[0]
        values = _axis_values(first, "x", first.z.shape[1])
        columns = ("", "row", *(str(_tick(layout, first.xaxis or "x", value)) for value in values))
        rows = [row for trace in figure.data for row in _map_rows(layout, trace)]
    else:
        has_starts = any(trace.type == "bar" and trace.base is not None for trace in figure.data)
        x, y = layout.xaxis.title.text or "x", layout.yaxis.title.text or "y"
        columns = ("", "length", y, "start") if has_starts else ("", x, y)
        rows = [row for trace in figure.data for row in _point_rows(layout, trace, has_starts=has_starts)]
    return Numbers(columns, tuple(rows), layout.meta["name"], layout.meta["caption"])


def _map_rows(layout: go.Layout, trace: go.Heatmap) -> Iterator[tuple[Value, ...]]:
    for value, row in zip(_axis_values(trace, "y", len(trace.z)), trace.z, strict=True):
        numbers = plain_values(np.asarray(row, dtype=np.float32))
        yield (_text(trace.name or ""), _tick(layout, trace.yaxis or "y", value), *numbers)


def _point_rows(layout: go.Layout, trace: Any, *, has_starts: bool) -> Iterator[tuple[Value, ...]]:
    bases = getattr(trace, "base", None)
    for index, (x, y) in enumerate(zip(trace.x, trace.y, strict=True)):
        starts = [_plain(None if bases is None else bases[index])] if has_starts else []
        yield (_text(trace.name or ""), _plain(x), _tick(layout, trace.yaxis or "y", y), *starts)


def _axis_values(trace: go.Heatmap, axis: str, count: int) -> list[Any]:
    """Return the value on an axis for each column or row."""
    if trace[axis] is not None:
        return list(trace[axis])
    start, step = trace[f"{axis}0"] or 0, trace[f"d{axis}"] or 1
    return [start + index * step for index in range(count)]


def _tick(layout: go.Layout, name: str, value: Any) -> Value:
    """Return the text of the axis at a value, or the value."""
    axis = layout[f"{name[0]}axis{name[1:]}"]
    ticks = dict(zip(axis.tickvals, axis.ticktext, strict=True)) if axis.ticktext else {}
    return _plain(ticks.get(value, value))


def _plain(value: Any) -> Value:
    """Return a value of a figure as CSV and JSON represent it."""
    if isinstance(value, np.generic):
        value = plain_values(np.array([value]))[0] if isinstance(value, np.floating) else value.item()
    if isinstance(value, float) and np.isnan(value):
        return None
    plain: Value = _text(value) if isinstance(value, str) else value
    return plain


def _text(markup: str) -> str:
    """Remove the markup of plotly."""
    return unescape(re.sub(r"<[^<>]*>", " ", markup).strip())


def as_csv(numbers: Numbers) -> str:
    """Return the numbers as CSV; texts that a spreadsheet would run as a formula begin with an apostrophe."""
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow(numbers.columns)
    writer.writerows([_no_formula(value) for value in row] for row in numbers.rows)
    return file.getvalue()


def _no_formula(value: Value) -> Value:
    is_formula = isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{value}" if is_formula else value
