"""Figure of the importance of each document for each token of an answer."""

from collections.abc import Sequence

import plotly.graph_objects as go

import pine_engine as pine
from viz.drawing.text import shorten
from viz.figures.frame import (
    FloatArray,
    answer_queries,
    document_labels,
    new_figure,
    plain,
    require_attention,
)
from viz.figures.importance import Normalization, add_importances, normalize, place_name, select_importance

_MAX_TOKEN_CHARACTERS = 16


def plot_answer_importance(
    trace: "pine.Trace",
    tokens: Sequence[str],
    *,
    layer: int | None = None,
    head: int | None = None,
    normalization: Normalization = "share",
    order: Sequence[int] | None = None,
    step: int | None = None,
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
        step: Token whose row is outlined, from 0.
    """
    values, is_ranked = _answer_importance_info(trace, len(tokens), layer, head, normalization)
    quantity = "importance" if is_ranked else "attention"
    names = document_labels(values.shape[1], order)
    figure = new_figure(
        name="answer-importance",
        title=f"{quantity.capitalize()} by document and answer token, {place_name(layer, head)}",
        caption="Rows: answer tokens. Columns: documents. Look for the token at which another document leads."
        + ("" if is_ranked else " This method does not rank documents; attention is shown instead."),
        height=160 + max(16 * len(values), 120),
        meta={"verbatim": ["ticktext"]},
    )
    first = trace.layout.suffix_length - 1
    add_importances(
        figure,
        values,
        names,
        normalization,
        quantity=quantity,
        cell="%{y}, document %{x}",
        titles=("document", "answer token"),
        meta={"y": [{"query": f"suffix {first + index}"} for index in range(len(values))]},
        selected_row=step,
    )
    labels = [plain(shorten(text, _MAX_TOKEN_CHARACTERS)) for text in tokens[: len(values)]]
    figure.update_yaxes(
        tickvals=list(range(len(values))),
        ticktext=[f"{number}: {label}" for number, label in enumerate(labels, start=1)],
    )
    return figure


def _answer_importance_info(
    trace: "pine.Trace", num_tokens: int, layer: int | None, head: int | None, normalization: Normalization
) -> tuple[FloatArray, bool]:
    """Return values (T, D), and True if they are importances."""
    importance = trace.suffix_importance
    recorded = require_attention(trace) if importance is None else importance
    values = select_importance(recorded[:, :, answer_queries(trace.layout, num_tokens)], layer, head)
    if importance is None:
        values = values[:, 1:-1]  # without prefix and suffix
    return normalize(values, normalization), importance is not None
