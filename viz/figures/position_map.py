"""Figure of the position of each document for all documents and the question, in one layer and head."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

import pine_engine as pine
from viz.figures.frame import FloatArray, document_segments, new_figure, outlined_row
from viz.figures.importance import MAX_NUMBERED
from viz.figures.positions import MASKED, IntArray
from viz.theme import BLUES
from viz.theme import MASKED as MASKED_COLOR


def plot_position_map(
    trace: "pine.Trace",
    *,
    layer: int,
    head: int,
    query: int | None = None,
    document: int | None = None,
    order: Sequence[int] | None = None,
) -> go.Figure:
    """Plot the first position of each document (columns) for each query (rows) as a heatmap.

    The queries are the documents and the last token of the question. z is float32 (Q, D), in tokens, NaN
    where the query may not attend to the document.

    Args:
        trace: Trace of any method.
        layer: Layer, for methods whose positions depend on it.
        head: Head, for methods whose positions depend on it.
        query: Index of a suffix token or answer token that is a query too; its row is outlined.
        document: Slot of a document; its row is outlined.
        order: Document, as entered, in each slot.

    Returns:
        The figure.
    """
    last = trace.layout.suffix_length - 1
    tokens = sorted({last} if query is None else {last, query})
    starts, values = _position_map_info(trace, layer, head, tokens)
    names = [segment.label for segment in document_segments(starts.shape[1], order)]
    ends = starts + trace.layout.lengths - 1
    text = [
        ["" if start == MASKED else f"{start}–{end}" for start, end in zip(*row, strict=True)]
        for row in zip(starts, ends, strict=True)
    ]
    is_uniform = trace.suffix_starts.shape[:2] == (1, 1)
    figure = new_figure(
        name="position-map",
        title="Where every query sees every document"
        + ("" if is_uniform else f", layer {layer}, head {head}"),
        caption="A number is the first and last position a document takes; grey: may not be read.",
        height=150 + 32 * len(values),
        plot_bgcolor=MASKED_COLOR,
        coloraxis={
            "colorscale": [[index / (len(BLUES) - 1), color] for index, color in enumerate(BLUES)],
            "colorbar": {"title": {"text": "first position (tokens)"}},
        },
    )
    figure.add_heatmap(
        z=values,
        x=names,
        y=[*names, *(_token_name(token, last) for token in tokens)],
        coloraxis="coloraxis",
        xgap=2,
        ygap=2,
        customdata=text,
        **({"text": text, "texttemplate": "%{text}"} if len(names) <= MAX_NUMBERED else {}),
        hovertemplate="%{y} sees document %{x} at %{customdata}<extra></extra>",
        meta={
            "y": [
                *({"query": f"document {slot}"} for slot in range(len(names))),
                *({"query": f"suffix {token}"} for token in tokens),
            ]
        },
    )
    figure.update_xaxes(title="document that is read", side="top", type="category")
    figure.update_yaxes(title="query", autorange="reversed", type="category")
    if document is not None:
        figure.add_shape(outlined_row(document, len(names)))
    elif query is not None:
        figure.add_shape(outlined_row(len(names) + tokens.index(query), len(names)))
    return figure


def _position_map_info(
    trace: "pine.Trace", layer: int, head: int, tokens: Sequence[int]
) -> tuple[IntArray, FloatArray]:
    """Return the starts of the documents for all queries, (Q, D), and these with NaN where masked."""
    layers, heads = trace.suffix_starts.shape[:2]
    index = min(layer, layers - 1), min(head, heads - 1)
    starts = np.vstack([trace.document_starts[index], trace.suffix_starts[index][list(tokens)]])
    return starts, np.where(starts == MASKED, np.nan, starts).astype(np.float32)


def _token_name(token: int, last: int) -> str:
    """Name a suffix token; `last` is the last token of the question."""
    return f"OUT {token - last}" if token > last else "SUF" if token == last else f"SUF {token + 1}"
