"""How the attention of an answer is divided between the parts of the prompt."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from viz.drawing.identity import PREFIX, SUFFIX
from viz.drawing.numbers import format_value
from viz.figures.frame import documents_of, new_figure
from viz.figures.importance import attention_shares, place_name, select_importance
from viz.theme import INK

if TYPE_CHECKING:
    from pine_engine.attention.trace import Trace


def plot_attention_shares(
    trace: "Trace",
    *,
    steps: int,
    step: int | None = None,
    layer: int | None = None,
    head: int | None = None,
    with_rest: bool = True,
    order: Sequence[int] | None = None,
) -> go.Figure:
    """Bars: the share of attention that each part of the prompt gets while the answer is written.

    steps: tokens of the answer whose writing the trace has seen. step: one of them, from 0; None for their
    mean. layer, head, order: as in plot_importance. with_rest: whether prefix and suffix are drawn; without
    them the documents' shares sum to 1.

    y is float32 (1 + D + 1), of prefix, documents and suffix, or (D,); never NaN. A prompt without a prefix
    has no bar for it.
    """
    assert trace.suffix_attention is not None, "a trace without attention"
    first = trace.layout.suffix_length - 1
    chosen = slice(first, first + steps) if step is None else slice(first + step, first + step + 1)
    values = select_importance(trace.suffix_attention[:, :, chosen], layer, head)
    shares = attention_shares(values, with_rest=with_rest).mean(axis=0)
    segments = list(documents_of(trace.layout.num_documents, order))
    if with_rest:
        segments = [PREFIX, *segments, SUFFIX]
        if not trace.layout.prefix_length:
            segments, shares = segments[1:], shares[1:]
    when = f"mean over the answer’s {steps} tokens" if step is None else f"token {step + 1} of the answer"
    figure = new_figure(
        name="attention-shares",
        title=f"Where attention went, {when}, {place_name(layer, head)}",
        caption="A bar is the share of all attention that a part of the prompt gets."
        if with_rest
        else "A bar is the share of the attention on documents that a document gets.",
        height=260,
        showlegend=False,
    )
    figure.add_bar(
        x=[segment.label for segment in segments],
        y=shares,
        marker={"color": [segment.color for segment in segments], "line": {"color": INK, "width": 1}},
        customdata=[segment.name for segment in segments],
        text=[format_value(float(share)) for share in shares],
        textposition="outside",
        cliponaxis=False,
        hovertemplate="%{customdata}: %{y:.3g}<extra></extra>",
    )
    figure.update_xaxes(title="read", type="category")
    figure.update_yaxes(title="share of attention", showgrid=True, rangemode="tozero")
    return figure
