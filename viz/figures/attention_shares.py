"""Figure of the attention of an answer on each segment of the prompt."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

import pine_engine as pine
from viz.drawing.identity import PREFIX, SUFFIX
from viz.drawing.text import format_short
from viz.figures.frame import FloatArray, answer_queries, document_segments, new_figure, require_attention
from viz.figures.importance import normalize, place_name, select_importance
from viz.theme import INK


def plot_attention_shares(
    trace: "pine.Trace",
    *,
    steps: int,
    step: int | None = None,
    layer: int | None = None,
    head: int | None = None,
    with_rest: bool = True,
    order: Sequence[int] | None = None,
) -> go.Figure:
    """Plot the share of attention on each segment of the prompt, while the answer is decoded, as bars.

    y is float32 (1 + D + 1) of prefix, documents and suffix, or (D,) without the rest; never NaN. A prompt
    without a prefix has no bar for it. Raises InputError if no such answer token was traced.

    Args:
        trace: Trace with attention.
        steps: Number of answer tokens whose decoding was traced.
        step: One of these tokens, from 0; None for their mean.
        layer: Layer, from 0; None for the mean over layers.
        head: Head, from 0; None for the mean over heads.
        with_rest: Include prefix and suffix. Without them, the shares of the documents sum to 1.
        order: Document, as entered, in each slot.
    """
    shares = _attention_shares_info(trace, steps, step, layer, head, with_rest=with_rest)
    parts, segments = "document", document_segments(trace.layout.num_documents, order)
    if with_rest:
        parts, segments = "segment of the prompt", (PREFIX, *segments, SUFFIX)
        if not trace.layout.prefix_length:
            segments, shares = segments[1:], shares[1:]
    place = place_name(layer, head)
    if step is None:
        place = f"mean over {steps} answer tokens, {place.removeprefix('mean over ')}"
    else:
        place = f"answer token {step + 1}, {place}"
    figure = new_figure(
        name="attention-shares",
        title=f"Attention on each {parts.partition(' ')[0]}, {place}",
        caption=("Share of total attention." if with_rest else "Share of the attention on documents.")
        + " Look for the tallest bar, then for the answer without this document.",
        height=260,
        showlegend=False,
    )
    figure.add_bar(
        x=[segment.label for segment in segments],
        y=shares,
        marker={"color": [segment.color for segment in segments], "line": {"color": INK, "width": 1}},
        customdata=[segment.name for segment in segments],
        text=[format_short(float(share)) for share in shares],
        textposition="outside",
        cliponaxis=False,
        hovertemplate="%{customdata}: %{y:.2g}<extra></extra>",
    )
    figure.update_xaxes(title=parts, type="category")
    figure.update_yaxes(title="share of attention", showgrid=True, rangemode="tozero")
    return figure


def _attention_shares_info(
    trace: "pine.Trace", steps: int, step: int | None, layer: int | None, head: int | None, *, with_rest: bool
) -> FloatArray:
    attention = require_attention(trace)[:, :, answer_queries(trace.layout, steps, step)]
    if not attention.shape[2]:
        raise pine.InputError(f"no traced answer token: got steps={steps}, step={step}", field="steps")
    values = select_importance(attention, layer, head)
    shares = values if with_rest else normalize(values[:, 1:-1], "share")
    return np.asarray(shares.mean(axis=0))
