"""Figure of the position of each document for one query, one row per layer or head."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

import pine_engine as pine
from pine_engine.methods.plan import MASKED as MASKED
from viz.drawing.identity import Segment
from viz.figures.frame import document_segments, new_figure
from viz.theme import CHOSEN, INK

IntArray = NDArray[np.integer[Any]]

_ROW_HEIGHT = 0.9  # of the bars of a row together, as a share of the row


def plot_positions(
    trace: "pine.Trace",
    *,
    query: int = -1,
    document: int | None = None,
    by: Literal["layer", "head"] = "layer",
    layer: int | None = None,
    head: int | None = None,
    order: Sequence[int] | None = None,
) -> go.Figure:
    """Plot the position of each document for one query as bars, one row per layer or head.

    base and x of each bar are the first position of the document and its length in tokens, one value per row,
    NaN where the query may not attend to it, and for methods without positions. Methods with equal positions
    in all layers and heads have one row.

    Args:
        trace: Trace of any method.
        query: Index of a suffix token or answer token, from 0 or from the end.
        document: Slot of a document, whose last token is the query instead.
        by: Dimension of the rows.
        layer: Layer that is marked, or fixed if the rows are heads; default 0.
        head: Head that is marked, or fixed if the rows are layers; default 0.
        order: Document, as entered, in each slot.
    """
    starts, query_position = query_positions(trace, query, document)
    is_uniform = starts.shape[:2] == (1, 1)
    other, selected, fixed = ("head", layer, head or 0) if by == "layer" else ("layer", head, layer or 0)
    by_row = starts if by == "layer" else starts.swapaxes(0, 1)
    fixed = min(fixed, by_row.shape[1] - 1)
    rows = by_row[:, fixed]
    labels = ["all layers and heads"] if is_uniform else [f"{by} {index}" for index in range(len(rows))]
    figure = new_figure(
        name="positions",
        title="Document positions for the query" + ("" if is_uniform else f", {other} {fixed}"),
        caption=f"One row per {by}. Documents closer to the line are nearer to the query. Look for a "
        "document that is nearest in most rows.",
        height=110 + max(20 * len(rows), 60),
        barmode="overlay",
    )
    picks: list[dict[str, Any]] = [{by: index} for index in range(len(rows))]
    segments = document_segments(rows.shape[-1], order)
    figure.add_traces(list(document_bars(rows, trace.layout.lengths, segments, labels, picks)))
    add_query_marks(figure, labels, [query_position] * len(labels))
    if selected is not None and selected < len(labels):
        figure.add_hrect(selected - 0.5, selected + 0.5, line={"color": CHOSEN, "width": 2})
    return figure


def query_positions(trace: "pine.Trace", query: int, document: int | None) -> tuple[IntArray, int]:
    """Return the start of each document for one query, (A, H, D), and the position of the query."""
    lengths = trace.layout.lengths
    if document is not None:
        starts = trace.document_starts[:, :, document]
        is_placed = starts[0, 0, document] != MASKED
        return starts, int(starts[0, 0, document] + lengths[document] - 1) if is_placed else 0
    index = query % trace.suffix_starts.shape[2]
    starts = trace.suffix_starts[:, :, index]
    if (starts == MASKED).all():  # a method without positions
        return starts, 0
    # The suffix begins where the last of the documents ends.
    return starts, int((starts[0, 0] + lengths).max()) + index


def at_place(starts: IntArray, layer: int, head: int) -> IntArray:
    """Select a layer and head of (A, H, ...), or the only one where positions do not depend on them."""
    layers, heads = starts.shape[:2]
    return np.asarray(starts[layer if layers > 1 else 0, head if heads > 1 else 0])


def document_bars(
    starts: IntArray,
    lengths: IntArray,
    segments: Sequence[Segment],
    labels: Sequence[str],
    picks: Sequence[dict[str, Any]] = (),
) -> Iterator[go.Bar]:
    """Yield a bar per document and row, stacked at equal positions; starts are (R, D), lengths (D,)."""
    # Bars of a row that overlap are in different lanes, (R, D), which divide the height of the row.
    lanes = np.array([document_lanes(row, lengths) for row in starts])
    heights = _ROW_HEIGHT / (lanes.max(axis=1, initial=0) + 1)
    offsets = heights[:, None] * np.maximum(lanes, 0) - _ROW_HEIGHT / 2
    for index, segment in enumerate(segments):
        base = np.where(starts[:, index] == MASKED, np.nan, starts[:, index]).astype(np.float32)
        length = np.where(np.isnan(base), np.nan, lengths[index]).astype(np.float32)
        style = {"orientation": "h", "textposition": "inside", "insidetextanchor": "middle", "textangle": 0}
        yield go.Bar(
            **style,
            y=list(labels),
            base=base,
            x=length,
            name=segment.name,
            text=[segment.label] * len(labels),
            insidetextfont={"color": segment.ink},
            marker={"color": segment.color, "line": {"color": INK, "width": 1}},
            customdata=base + length - 1,
            hovertemplate=f"%{{y}}: {segment.name} at %{{base}}–%{{customdata}}<extra></extra>",
            width=heights,
            offset=offsets[:, index],
            meta={"y": list(picks)} if picks else None,
        )


def add_query_marks(figure: go.Figure, labels: Sequence[str], positions: Sequence[int]) -> None:
    """Add the position of the query in each row, and the axes of positions by row."""
    figure.add_scatter(
        x=list(positions),
        y=list(labels),
        mode="markers",
        name="query",
        marker={"symbol": "line-ns", "size": 14, "line": {"width": 3, "color": INK}},
        hovertemplate="%{y}: query at %{x}<extra></extra>",
    )
    figure.update_yaxes(autorange="reversed", type="category")
    figure.update_xaxes(title="position (tokens)", showgrid=True)


def document_lanes(starts: IntArray, lengths: IntArray) -> IntArray:
    """Return the first lane (D,) in which each document overlaps no earlier one; MASKED if not visible."""
    lanes = np.full(len(starts), MASKED, dtype=np.int64)
    ends = starts + lengths
    for document in np.flatnonzero(starts != MASKED):
        overlaps = (starts[:document] < ends[document]) & (starts[document] < ends[:document])
        taken = set(lanes[:document][overlaps].tolist())
        lanes[document] = next(lane for lane in range(len(taken) + 1) if lane not in taken)
    return lanes
