"""How important each document finds each other one."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from viz.figures.frame import cells_text, documents_of, new_figure, outlined_row
from viz.figures.importance import Normalisation, normalise, place_name, select_importance

if TYPE_CHECKING:
    from pine_engine.attention.trace import Trace

NUMBERED = 16
"""Most documents whose cells have room for their number."""

MEASURES: dict[Normalisation, str] = {
    "raw": "importance",
    "share": "share of importance",
    "log": "log10 of importance",
}


def plot_importance(
    trace: "Trace",
    *,
    layer: int | None = None,
    head: int | None = None,
    normalization: Normalisation = "share",
    order: Sequence[int] | None = None,
    chosen: int | None = None,
) -> go.Figure:
    """Heatmap of how important a document (down) finds another (across).

    trace: of a method that ranks. layer, head: from 0; None for the mean over all. normalization: "raw" for
    sums of softmax weights divided by the length of the document that is read, in tokens; "share" for that as
    a part of its row; "log" for its log10. order: which document, as entered, stands in each slot. chosen:
    a slot whose row is outlined.

    z is float32 (D, D), NaN on the diagonal: no document ranks itself.
    """
    assert trace.document_importance is not None, "a method that does not rank"
    values = scaled(select_importance(trace.document_importance, layer, head), normalization)
    names = [segment.label for segment in documents_of(len(values), order)]
    figure = new_figure(
        name="importance",
        title=f"Which document finds which important, {place_name(layer, head)}",
        caption="A row reads, a column is read; PINE places the most important document closest.",
        height=160 + 32 * len(values),
        coloraxis=color_axis(values, normalization, MEASURES[normalization]),
    )
    figure.add_heatmap(
        z=values,
        x=names,
        y=names,
        **heat(values),
        hovertemplate=f"document %{{y}} reads %{{x}}<br>{MEASURES[normalization]} %{{z:.3g}}<extra></extra>",
        meta={"y": [{"query": f"document {slot}"} for slot in range(len(values))]},
    )
    figure.update_xaxes(title="document that is read", side="top", type="category")
    figure.update_yaxes(title="document that reads", autorange="reversed", type="category")
    if chosen is not None:
        figure.add_shape(outlined_row(chosen, len(values)))
    return figure


def scaled(values: NDArray[np.float32], normalization: Normalisation) -> NDArray[np.float32]:
    """Importances (..., D) as they are drawn; NaN stays NaN, and 0 has no log10."""
    if normalization != "log":
        return normalise(values, normalization)
    return np.log10(np.where(values > 0, values, np.nan)).astype(np.float32)


def color_axis(values: NDArray[np.float32], normalization: Normalisation, measure: str) -> dict[str, Any]:
    """The colour scale of what is drawn: from zero, but of log10."""
    known = values[~np.isnan(values)]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
    low = low if normalization == "log" else 0.0
    return {"cmin": low, "cmax": high, "colorbar": {"title": {"text": measure}}}


def heat(values: NDArray[np.float32]) -> dict[str, Any]:
    """How a matrix of importances is drawn, with numbers where there is room."""
    numbered = values.shape[1] <= NUMBERED
    text = {"text": cells_text(values), "texttemplate": "%{text}"} if numbered else {}
    return {"coloraxis": "coloraxis", "xgap": 2, "ygap": 2, **text}
