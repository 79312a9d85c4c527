"""Figure of the importance of each document for each other one, and the arithmetic of importances."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import plotly.graph_objects as go

import pine_engine as pine
from viz.drawing.text import format_short
from viz.figures.frame import FloatArray, add_cells, document_labels, new_figure

Normalization = Literal["raw", "share", "log"]

_MEASURES: dict[Normalization, str] = {"raw": "{}", "share": "{} share", "log": "log10({})"}


def plot_importance(
    trace: "pine.Trace",
    *,
    layer: int | None = None,
    head: int | None = None,
    normalization: Normalization = "share",
    order: Sequence[int] | None = None,
    document: int | None = None,
) -> go.Figure:
    """Plot the importance of each document (columns) for each other document (rows) as a heatmap.

    z is float32 (D, D), NaN on the diagonal: a document does not rank itself.

    Args:
        trace: Trace of a method that ranks documents.
        layer: Layer, from 0; None for the mean over layers.
        head: Head, from 0; None for the mean over heads.
        normalization: "raw" for sums of softmax weights divided by the length of the key document in tokens,
            "share" for raw values divided by the sum of their row, "log" for log10 of raw values.
        order: Document, as entered, in each slot.
        document: Slot of the document whose row is outlined.
    """
    values = _importance_info(trace, layer, head, normalization)
    names = document_labels(len(values), order)
    figure = new_figure(
        name="importance",
        title=f"Document-to-document importance, {place_name(layer, head)}",
        caption="Rows: query documents. Columns: key documents. PINE places the most important one closest. "
        "Look for a column that is dark in all rows.",
        height=160 + 32 * len(values),
    )
    add_importances(
        figure,
        values,
        names,
        normalization,
        y=names,
        cell="query document %{y}, key document %{x}",
        titles=("key document", "query document"),
        meta={"y": [{"query": f"document {slot}"} for slot in range(len(values))]},
        selected_row=document,
    )
    figure.update_yaxes(type="category")
    return figure


def _importance_info(
    trace: "pine.Trace", layer: int | None, head: int | None, normalization: Normalization
) -> FloatArray:
    importance = require_importance(trace.document_importance, trace)
    return normalize(select_importance(importance, layer, head), normalization)


def require_importance(importance: FloatArray | None, trace: "pine.Trace") -> FloatArray:
    """Return the importances of a trace. Raises InputError for a method that ranks no documents."""
    if importance is None:
        raise pine.InputError(f"{trace.method} ranks no documents: pass the trace of pine", field="trace")
    return importance


def select_importance(importance: FloatArray, layer: int | None, head: int | None) -> FloatArray:
    """Select a layer and head of (A, H, ...), None for the mean over them; NaN stays NaN."""
    layers = importance if layer is None else importance[[layer]]
    heads = layers if head is None else layers[:, [head]]
    return np.asarray(heads.mean(axis=(0, 1), dtype=np.float64), dtype=np.float32)


def normalize(importance: FloatArray, normalization: Normalization) -> FloatArray:
    """Divide each row of (..., D) by its sum ("share"), take log10 of it ("log"), or return it ("raw").

    NaN stays NaN, log10 of 0 is NaN, and a row that sums to zero stays zero.
    """
    if normalization == "log":
        return np.log10(np.where(importance > 0, importance, np.nan)).astype(np.float32)
    if normalization == "raw":
        return importance
    sums = np.nansum(importance, axis=-1, keepdims=True, dtype=np.float64)
    return np.asarray(importance / np.where(sums == 0, 1, sums), dtype=np.float32)


def place_name(layer: int | None, head: int | None) -> str:
    """Name a layer and head in a sentence."""
    if layer is None and head is None:
        return "mean over layers and heads"
    place = "mean over layers" if layer is None else f"layer {layer}"
    return place + (", mean over heads" if head is None else f", head {head}")


def add_importances(
    figure: go.Figure,
    values: FloatArray,
    x: list[str],
    normalization: Normalization,
    *,
    cell: str,
    quantity: str = "importance",
    **options: Any,
) -> None:
    """Add cells with their numbers, colored from zero, or from the minimum of log10; `cell` names one."""
    known = values[~np.isnan(values)]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
    low = low if normalization == "log" else 0.0
    measure = _MEASURES[normalization].format(quantity)
    figure.update_layout(coloraxis={"cmin": low, "cmax": high, "colorbar": {"title": {"text": measure}}})
    texts = [["" if np.isnan(value) else format_short(float(value)) for value in row] for row in values]
    add_cells(figure, values, x, texts=texts, hover=f"{cell}<br>{measure} %{{z:.2g}}", **options)
