"""Which documents an answer was written from, token by token."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from viz.drawing.tokens import shorten
from viz.figures.frame import documents_of, new_figure, outlined_row, plain
from viz.figures.importance import Normalisation, attention_shares, place_name, select_importance
from viz.figures.importance_map import MEASURES, color_axis, heat, scaled

if TYPE_CHECKING:
    from pine_engine.attention.trace import Trace

LONGEST = 16
"""Characters of a token that are written beside its row."""


def plot_answer_importance(
    trace: "Trace",
    tokens: Sequence[str],
    *,
    layer: int | None = None,
    head: int | None = None,
    normalization: Normalisation = "share",
    order: Sequence[int] | None = None,
    chosen: int | None = None,
) -> go.Figure:
    """Heatmap of how important each document (across) was when a token of the answer (down) was written.

    trace: of any method; of one that does not rank, its attention on the documents is drawn. tokens: texts of
    the answer's tokens. layer, head, normalization, order: as in plot_importance. chosen: a token whose row
    is marked.

    z is float32 (T, D), T being the tokens whose writing the trace has seen; NaN only for log10 of 0.
    """
    first = trace.layout.suffix_length - 1
    ranks = trace.suffix_importance is not None
    recorded = trace.suffix_importance if ranks else trace.suffix_attention
    assert recorded is not None, "a trace without attention"
    values = select_importance(recorded[:, :, first : first + len(tokens)], layer, head)
    if not ranks:
        values = attention_shares(values, with_rest=True)[:, 1:-1]
    values = scaled(values, normalization)
    measure = MEASURES[normalization].replace("importance", "importance" if ranks else "attention")
    names = [segment.label for segment in documents_of(values.shape[1], order)]
    figure = new_figure(
        name="answer-importance",
        title=f"Which documents the answer was written from, {place_name(layer, head)}",
        caption="A row is a token of the answer, a column a document that was read for it."
        + ("" if ranks else " This method does not rank: drawn is its attention."),
        height=160 + max(16 * len(values), 120),
        coloraxis=color_axis(values, normalization, measure),
    )
    figure.add_heatmap(
        z=values,
        x=names,
        **heat(values),
        hovertemplate=f"%{{y}}, document %{{x}}<br>{measure} %{{z:.3g}}<extra></extra>",
        meta={"y": [{"query": f"suffix {first + step}"} for step in range(len(values))]},
    )
    figure.update_xaxes(title="document", side="top", type="category")
    texts = [f"{step + 1} {plain(shorten(text, LONGEST))}" for step, text in enumerate(tokens[: len(values)])]
    figure.update_yaxes(
        title="token of the answer",
        autorange="reversed",
        tickvals=list(range(len(values))),
        ticktext=texts,
    )
    if chosen is not None:
        figure.add_shape(outlined_row(chosen, len(names)))
    return figure
