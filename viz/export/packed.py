"""A figure as the browser gets it: its JSON, in which large matrices are a byte a cell."""

import base64
import json
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.utils import PlotlyJSONEncoder

from viz.theme import CONFIG

PACKED_FROM = 10_000
"""Cells from which a matrix is packed."""

LEVELS = 254
"""Steps between the smallest and the largest value; 0 is what is NaN."""


def packed_json(figure: go.Figure) -> str:
    """The figure as viz/drawing/figures.js draws it. It can be put into a script of an HTML page as it is.

    A matrix of at least PACKED_FROM cells is sent as levels (uint8, one more than the step, 0 for NaN) with
    the smallest and the largest value in `meta.levels`: colours have no more steps, and it takes a quarter.
    """
    whole: dict[str, Any] = {**figure.to_plotly_json(), "config": CONFIG}
    for trace, written in zip(figure.data, whole["data"], strict=True):
        if trace.type == "heatmap" and np.size(trace.z) >= PACKED_FROM:
            levels, ends = _levels(np.asarray(trace.z, dtype=np.float64))
            written["z"] = {
                "dtype": "u1",
                "bdata": base64.b64encode(levels.tobytes()).decode(),
                "shape": ", ".join(map(str, levels.shape)),
            }
            written["meta"] = {**(trace.meta or {}), "levels": ends}
    return json.dumps(whole, cls=PlotlyJSONEncoder, separators=(",", ":")).replace("<", "\\u003c")


def _levels(values: NDArray[np.float64]) -> tuple[NDArray[np.uint8], list[float]]:
    known = values[~np.isnan(values)]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 0.0)
    steps = np.rint((values - low) / ((high - low) or 1) * LEVELS)
    return np.where(np.isnan(steps), 0, np.nan_to_num(steps) + 1).astype(np.uint8), [low, high]
