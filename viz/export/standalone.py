"""Figures as JSON for the browser, and in HTML documents that need no server and no network."""

import base64
import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.utils import PlotlyJSONEncoder

from viz.drawing.markup import render
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
