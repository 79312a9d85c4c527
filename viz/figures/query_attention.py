"""Figure of the attention of one query on each key token."""

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go

import pine_engine as pine
from viz.figures.frame import FloatArray, document_segments, method_labels, new_figure, plain
from viz.theme import line_color, method_number


def plot_query_attention(
    weights: FloatArray | Mapping[str, FloatArray],
    query: int,
    *,
    tokens: Sequence[str] | None = None,
    with_sink: bool = False,
    layout: "pine.TokenLayout | None" = None,
    order: Sequence[int] | None = None,
    labels: Mapping[str, str] | None = None,
) -> go.Figure:
    """Plot the attention of one query on each key token as bars side by side, one color per method.

    y is the weight, NaN where masked. The weights of all keys sum to 1.

    Args:
        weights: float32 (N, N), NaN where masked, as in `plot_attention`; or several by method.
        query: Index of the query, from 0 or from the end.
        tokens: Texts of all N tokens.
        with_sink: Include the first token.
        layout: Token layout of the prompt, to mark its documents.
        order: Document, as entered, in each slot.
        labels: Labels of the methods.
    """
    by_method = weights if isinstance(weights, Mapping) else {"attention": weights}
    count = len(next(iter(by_method.values())))
    query %= count
    first = 0 if with_sink else 1
    texts = [plain(text) for text in tokens] if tokens is not None else [""] * count
    token = f"token {query}" + (f", “{texts[query]}”," if texts[query] else "")
    figure = new_figure(
        name="query-attention",
        title=f"Attention of {token} on each key token",
        caption="One bar per key token. Look for tall bars in one document. Click a legend entry to hide it."
        + ("" if with_sink else " First token hidden."),
        height=320,
        barmode="group",
        bargap=0,
    )
    names = method_labels(list(by_method), labels)
    for index, (method, label) in enumerate(zip(by_method, names, strict=True)):
        figure.add_bar(
            x=np.arange(first, count, dtype=np.int32),
            y=by_method[method][query, first:].astype(np.float32),
            name=label,
            marker={"color": line_color(method_number(method, index)), "line": {"width": 0}},
            customdata=texts[first:],
            hovertemplate=f"{label}: key %{{x}} “%{{customdata}}”<br>weight %{{y:.3g}}<extra></extra>",
            meta={"x": {"token": "#"}},
        )
    figure.update_xaxes(title="key token")
    figure.update_yaxes(title="attention weight", showgrid=True)
    if layout is not None:
        segments = document_segments(layout.num_documents, order)
        for segment, start in zip(segments, layout.document_starts.tolist(), strict=True):
            figure.add_vline(start - 0.5, line_width=1, line_dash="dot", annotation_text=segment.label)
    return figure
