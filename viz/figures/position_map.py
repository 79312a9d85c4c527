"""Where every document sees every other one, in one layer and head."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go

from viz.drawing.ramps import BLUES
from viz.figures.frame import documents_of, new_figure, outlined_row
from viz.figures.importance_map import NUMBERED
from viz.figures.positions import MASKED
from viz.theme import MASKED as MASKED_COLOR

if TYPE_CHECKING:
    from pine_engine.attention.trace import Trace


def plot_position_map(
    trace: "Trace",
    *,
    layer: int,
    head: int,
    query: int | None = None,
    document: int | None = None,
    order: Sequence[int] | None = None,
) -> go.Figure:
    """Heatmap with numbers: where each query (down) sees each document (across) begin.

    Queries are the documents, and the last token of the question. layer, head: from 0; of a method that
    places documents alike everywhere they do not matter. query: a token of the suffix, from 0, decoded ones
    included, that has a row too; or `document`: a slot; its row is outlined. order: which document, as
    entered, stands in each slot.

    z is float32 (Q, D), Q being D documents and one or two tokens of the suffix: the position of the
    document's first token, in tokens; NaN where the query may not read it.
    """
    layers, heads = trace.suffix_starts.shape[:2]
    at = min(layer, layers - 1), min(head, heads - 1)
    last = trace.layout.suffix_length - 1
    tokens = sorted({last} if query is None else {last, query})
    starts = np.vstack([trace.document_starts[at], trace.suffix_starts[at][tokens]])
    values = np.where(starts == MASKED, np.nan, starts).astype(np.float32)
    documents = documents_of(starts.shape[1], order)
    names = [segment.label for segment in documents]
    lengths = trace.layout.lengths
    text = [
        [
            "" if start == MASKED else f"{start}–{start + length - 1}"
            for start, length in zip(row, lengths, strict=True)
        ]
        for row in starts
    ]
    figure = new_figure(
        name="position-map",
        title="Where every query sees every document"
        + (f", layer {layer}, head {head}" if layers * heads > 1 else ""),
        caption="A number is the first and last position a document takes; grey: may not be read.",
        height=150 + 32 * len(values),
        plot_bgcolor=MASKED_COLOR,
        coloraxis={
            "colorscale": [[place / (len(BLUES) - 1), color] for place, color in enumerate(BLUES)],
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
        **({"text": text, "texttemplate": "%{text}"} if len(names) <= NUMBERED else {}),
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


def _token_name(token: int, last: int) -> str:
    """last: of the question's."""
    return f"OUT {token - last}" if token > last else "SUF" if token == last else f"SUF {token + 1}"
