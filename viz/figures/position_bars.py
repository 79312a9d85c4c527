"""Where each document stands as one query sees it: a row a layer, a head or a method."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from viz.drawing.identity import Segment
from viz.figures.frame import documents_of, named, new_figure
from viz.figures.positions import MASKED
from viz.figures.rulers import ruler_lanes
from viz.theme import CHOSEN, INK

if TYPE_CHECKING:
    from pine_engine.attention.trace import Trace

_ROW = 0.9
"""Height of the bars of a row, as a part of the row."""


def plot_positions(
    trace: "Trace",
    *,
    query: int = -1,
    document: int | None = None,
    by: Literal["layer", "head"] = "layer",
    layer: int | None = None,
    head: int | None = None,
    order: Sequence[int] | None = None,
) -> go.Figure:
    """Bars on one axis of positions, a row for each layer of a head, or each head of a layer.

    query: a token of the suffix, decoded ones included, counted from 0 or from the end; or `document`: the
    tokens of the document in this slot. by: what a row is. layer, head: which one the other is fixed at, 0 if
    none is given; of a method that places documents alike everywhere there is one row. order: which document,
    as entered, stands in each slot.

    base and x of each bar are the document's first position and its length in tokens, one value a row, NaN
    where the query does not see it.
    """
    starts, place = seen_starts(trace, query, document)
    layers, heads = starts.shape[:2]
    if by == "layer":
        rows = starts[:, min(head or 0, heads - 1)]
        chosen = layer
    else:
        rows = starts[min(layer or 0, layers - 1)]
        chosen = head
    fixed = f"head {min(head or 0, heads - 1)}" if by == "layer" else f"layer {min(layer or 0, layers - 1)}"
    labels = (
        [f"{by} {index}" for index in range(len(rows))] if layers * heads > 1 else ["all layers and heads"]
    )
    figure = new_figure(
        name="positions",
        title=f"Where the query sees each document, {fixed}"
        if layers * heads > 1
        else "Where the query sees each document",
        caption=f"A row a {by}; the closer to the line at the right, the nearer a document is to the query.",
        height=110 + max(20 * len(rows), 60),
        barmode="overlay",
    )
    picks: list[dict[str, Any]] = [{by: index} for index in range(len(rows))]
    _add_documents(figure, rows, trace.layout.lengths, documents_of(rows.shape[-1], order), labels, picks)
    _add_query(figure, labels, [place] * len(labels))
    if chosen is not None and chosen < len(labels):
        figure.add_hrect(chosen - 0.5, chosen + 0.5, line={"color": CHOSEN, "width": 2})
    return figure


def plot_method_positions(
    traces: "Iterable[Trace] | Mapping[str, Trace]",
    *,
    query: int = -1,
    document: int | None = None,
    layer: int,
    head: int,
    order: Sequence[int] | None = None,
    labels: Mapping[str, str] | None = None,
) -> go.Figure:
    """Bars on one axis of positions, a row for each method.

    traces: of one prompt. layer, head: of methods that place documents differently in each. All else as in
    plot_positions.
    """
    traces = list(traces.values() if isinstance(traces, Mapping) else traces)
    seen = [seen_starts(trace, query, document) for trace in traces]
    rows = np.stack(
        [starts[min(layer, starts.shape[0] - 1), min(head, starts.shape[1] - 1)] for starts, _ in seen]
    )
    names = named([trace.method for trace in traces], labels)
    figure = new_figure(
        name="method-positions",
        title=f"Where the query sees each document, layer {layer}, head {head}",
        caption="A row a method; the line is the query’s own position.",
        height=120 + 40 * len(rows),
        barmode="overlay",
    )
    picks = [{"method": trace.method} for trace in traces]
    _add_documents(figure, rows, traces[0].layout.lengths, documents_of(rows.shape[-1], order), names, picks)
    _add_query(figure, names, [place for _, place in seen])
    return figure


def seen_starts(trace: "Trace", query: int, document: int | None) -> tuple[NDArray[np.integer[Any]], int]:
    """Where one query sees each document start, int (A, H, D), and the query's own position."""
    lengths = trace.layout.lengths
    if document is not None:
        starts = trace.document_starts[:, :, document]
        return starts, int(starts[0, 0, document] + lengths[document]) - 1
    index = query % trace.suffix_starts.shape[2]
    starts = trace.suffix_starts[:, :, index]
    # The suffix begins where the last of the documents, as it sees them, ends.
    return starts, int((starts[0, 0] + lengths).max()) + index


def _add_documents(
    figure: go.Figure,
    starts: NDArray[np.integer[Any]],
    lengths: NDArray[np.integer[Any]],
    documents: Sequence[Segment],
    labels: Sequence[str],
    picks: Sequence[Mapping[str, Any]],
) -> None:
    """A bar for each document in each row, above each other where they share positions.

    starts: int (R, D). lengths: (D,).
    """
    heights, offsets = stacked(starts, lengths)
    for place, segment in enumerate(documents):
        base = np.where(starts[:, place] == MASKED, np.nan, starts[:, place]).astype(np.float32)
        length = np.where(np.isnan(base), np.nan, lengths[place]).astype(np.float32)
        figure.add_bar(
            **document_bar(segment, labels, base, length),
            width=heights,
            offset=offsets[:, place],
            meta={"y": list(picks)},
        )
    figure.update_yaxes(autorange="reversed", type="category")
    figure.update_xaxes(title="position (tokens)", showgrid=True)


def stacked(
    starts: NDArray[np.integer[Any]], lengths: NDArray[np.integer[Any]]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Heights (R,) of the bars of each row, and where each begins (R, D): above each other if they share
    positions.

    starts: int (R, D). lengths: (D,).
    """
    lanes = np.array([ruler_lanes(row, lengths) for row in starts])
    heights = _ROW / (lanes.max(axis=1, initial=0) + 1)
    return heights, heights[:, None] * np.maximum(lanes, 0) - _ROW / 2


def document_bar(
    segment: Segment,
    labels: Sequence[str],
    base: NDArray[np.float32],
    length: NDArray[np.float32],
) -> dict[str, Any]:
    """A bar of one document in each row. base, length: float32 (R,), in tokens."""
    return {
        "y": list(labels),
        "base": base,
        "x": length,
        "orientation": "h",
        "name": segment.name,
        "text": [segment.label] * len(labels),
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "insidetextfont": {"color": segment.ink},
        "marker": {"color": segment.color, "line": {"color": INK, "width": 1}},
        "customdata": base + length - 1,
        "hovertemplate": f"%{{y}}: {segment.name} at %{{base}}–%{{customdata}}<extra></extra>",
    }


def _add_query(figure: go.Figure, labels: Sequence[str], places: Sequence[int]) -> None:
    figure.add_scatter(
        x=list(places),
        y=list(labels),
        mode="markers",
        name="the query",
        marker={"symbol": "line-ns", "size": 14, "line": {"width": 3, "color": INK}},
        hovertemplate="%{y}: the query at %{x}<extra></extra>",
    )
