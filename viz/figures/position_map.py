"""Figure of the position of each document for all documents and the question, in one layer and head."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

import pine_engine as pine
from viz import theme
from viz.figures.frame import add_cells, document_labels, new_figure
from viz.figures.positions import MASKED, at_place


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
    """
    last = trace.layout.suffix_length - 1
    tokens = sorted({last} if query is None else {last, query})
    suffix_starts = at_place(trace.suffix_starts, layer, head)[tokens]
    starts = np.vstack([at_place(trace.document_starts, layer, head), suffix_starts])
    values = np.where(starts == MASKED, np.nan, starts).astype(np.float32)
    names = document_labels(starts.shape[1], order)
    ends = starts + trace.layout.lengths - 1
    texts = [
        ["" if start == MASKED else f"{start}–{end}" for start, end in zip(*row, strict=True)]
        for row in zip(starts, ends, strict=True)
    ]
    place = "" if trace.suffix_starts.shape[:2] == (1, 1) else f", layer {layer}, head {head}"
    figure = new_figure(
        name="position-map",
        title=f"Document positions by query{place}",
        caption="First and last position of each document. Gray: masked. Look for columns that differ "
        "between queries: the method places the documents for each query.",
        height=150 + 32 * len(values),
        plot_bgcolor=theme.MASKED,
        coloraxis={"colorbar": {"title": {"text": "first position (tokens)"}}},
    )
    queries = [f"document {slot}" for slot in range(len(names))] + [f"suffix {token}" for token in tokens]
    # The last token of the question decodes answer token 1.
    labels = [f"answer {token - last + 1}" if token >= last else f"question {token + 1}" for token in tokens]
    selected = document
    if document is None and query is not None:
        selected = len(names) + tokens.index(query)
    add_cells(
        figure,
        values,
        names,
        y=[*names, *labels],
        texts=texts,
        customdata=texts,
        hover="query %{y}, document %{x} at %{customdata}",
        titles=("document", "query"),
        meta={"y": [{"query": query} for query in queries]},
        selected_row=selected,
    )
    figure.update_yaxes(type="category")
    return figure
