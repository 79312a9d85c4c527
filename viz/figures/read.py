"""What one query reads, key token by key token."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from viz.figures.frame import documents_of, named, new_figure, plain
from viz.theme import LINES

if TYPE_CHECKING:
    from pine_engine.prompts.layout import TokenLayout


def plot_query_attention(
    weights: NDArray[np.float32] | Mapping[str, NDArray[np.float32]],
    query: int,
    *,
    tokens: Sequence[str] | None = None,
    with_sink: bool = False,
    layout: "TokenLayout | None" = None,
    order: Sequence[int] | None = None,
    labels: Mapping[str, str] | None = None,
) -> go.Figure:
    """Bars side by side: the attention of one query on each key token, a colour a method.

    weights: float32 (N, N), NaN where masked, as plot_attention takes them; or several by method. query: a
    token, counted from 0 or from the end. tokens: the texts of all N. with_sink: whether the first token is
    drawn. layout: of the prompt, where its documents should be named, in this order. labels: of the methods.

    y is the weight, NaN where masked; the weights of all keys sum to 1.
    """
    by_method = weights if isinstance(weights, Mapping) else {"attention": weights}
    count = len(next(iter(by_method.values())))
    query %= count
    first = 0 if with_sink else 1
    texts = [plain(text) for text in tokens] if tokens is not None else [""] * count
    figure = new_figure(
        name="what-a-query-reads",
        title=f"What token {query} reads" + (f", “{texts[query]}”" if texts[query] else ""),
        caption="A bar a key token; a click on a name in the legend hides it."
        + ("" if with_sink else " The first token is left out."),
        height=320,
        barmode="group",
        bargap=0,
    )
    for place, (method, label) in enumerate(zip(by_method, named(list(by_method), labels), strict=True)):
        figure.add_bar(
            x=np.arange(first, count, dtype=np.int32),
            y=by_method[method][query, first:].astype(np.float32),
            name=label,
            marker={"color": LINES[place % len(LINES)], "line": {"width": 0}},
            customdata=texts[first:],
            hovertemplate=f"{label}: key %{{x}} “%{{customdata}}”<br>weight %{{y:.3g}}<extra></extra>",
            meta={"x": {"token": "#"}},
        )
    figure.update_xaxes(title="key token")
    figure.update_yaxes(title="attention weight", showgrid=True)
    if layout is not None:
        documents = documents_of(layout.num_documents, order)
        for segment, start in zip(documents, layout.document_starts.tolist(), strict=True):
            figure.add_vline(
                start - 0.5, line={"width": 1, "dash": "dot"}, annotation={"text": segment.label}
            )
    return figure
