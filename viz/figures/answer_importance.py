"""Figure of the importance of each document for each token of an answer."""

from collections.abc import Sequence

import plotly.graph_objects as go

import pine_engine as pine
from viz.drawing.text import shorten
from viz.figures.frame import FloatArray, document_segments, new_figure, outlined_row, plain
from viz.figures.importance import (
    MEASURES,
    Normalisation,
    cell_style,
    color_axis,
    normalise,
    place_name,
    select_importance,
)

MAX_TOKEN_CHARACTERS = 16
"""Maximum characters of a token beside its row."""


def plot_answer_importance(
    trace: "pine.Trace",
    tokens: Sequence[str],
    *,
    layer: int | None = None,
    head: int | None = None,
    normalization: Normalisation = "share",
    order: Sequence[int] | None = None,
    chosen: int | None = None,
) -> go.Figure:
    """Plot the importance of each document (columns) for each answer token (rows) as a heatmap.

    z is float32 (T, D) for the T tokens whose decoding was traced; NaN only for log10 of 0. For a method that
    does not rank documents, z is its attention on them.

    Args:
        trace: Trace of any method.
        tokens: Texts of the answer tokens.
        layer: Layer, from 0; None for the mean over layers.
        head: Head, from 0; None for the mean over heads.
        normalization: As in `plot_importance`.
        order: Document, as entered, in each slot.
        chosen: Index of the token whose row is outlined.

    Returns:
        The figure.
    """
    values, is_ranked = _answer_importance_info(trace, len(tokens), layer, head, normalization)
    measure = MEASURES[normalization]
    measure = measure if is_ranked else measure.replace("importance", "attention")
    names = [segment.label for segment in document_segments(values.shape[1], order)]
    figure = new_figure(
        name="answer-importance",
        title=f"Which documents the answer was written from, {place_name(layer, head)}",
        caption="A row is a token of the answer, a column a document that was read for it."
        + ("" if is_ranked else " This method does not rank: drawn is its attention."),
        height=160 + max(16 * len(values), 120),
        coloraxis=color_axis(values, normalization, measure),
    )
    first = trace.layout.suffix_length - 1
    figure.add_heatmap(
        z=values,
        x=names,
        **cell_style(values),
        hovertemplate=f"%{{y}}, document %{{x}}<br>{measure} %{{z:.3g}}<extra></extra>",
        meta={"y": [{"query": f"suffix {first + step}"} for step in range(len(values))]},
    )
    figure.update_xaxes(title="document", side="top", type="category")
    texts = [plain(shorten(text, MAX_TOKEN_CHARACTERS)) for text in tokens[: len(values)]]
    figure.update_yaxes(
        title="token of the answer",
        autorange="reversed",
        tickvals=list(range(len(values))),
        ticktext=[f"{number} {text}" for number, text in enumerate(texts, start=1)],
    )
    if chosen is not None:
        figure.add_shape(outlined_row(chosen, len(names)))
    return figure


def _answer_importance_info(
    trace: "pine.Trace", num_tokens: int, layer: int | None, head: int | None, normalization: Normalisation
) -> tuple[FloatArray, bool]:
    """Return values (T, D), and True if they are importances."""
    is_ranked = trace.suffix_importance is not None
    recorded = trace.suffix_importance if is_ranked else trace.suffix_attention
    assert recorded is not None, "a trace without attention"
    # The query that decodes a token is the token before it; for the first token the last of the prompt.
    first = trace.layout.suffix_length - 1
    values = select_importance(recorded[:, :, first : first + num_tokens], layer, head)
    if not is_ranked:
        values = values[:, 1:-1]  # without prefix and suffix
    return normalise(values, normalization), is_ranked
