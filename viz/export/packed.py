"""JSON of a figure for the browser, with large matrices as one byte per cell."""

import base64
import json
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.utils import PlotlyJSONEncoder

from viz.theme import CONFIG

MIN_PACKED_CELLS = 10_000

LEVELS = 254  # steps between the smallest and the largest value; 0 is NaN


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
