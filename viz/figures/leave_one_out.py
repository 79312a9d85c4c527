"""Figure and sentence of leave-one-out: the fall of an answer's log-probability without each document."""

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go

import pine_engine as pine
from viz.drawing.identity import document_segment
from viz.drawing.text import format_percent, format_short
from viz.figures.answer_origin import AnswerOrigin
from viz.figures.answer_tokens import quoted
from viz.figures.frame import document_segments, method_labels, new_figure
from viz.theme import INK, bar_pattern, method_number


def plot_leave_one_out(
    results: "pine.LeaveOneOut | Mapping[str, pine.LeaveOneOut]",
    *,
    order: Sequence[int] | None = None,
    labels: Mapping[str, str] | None = None,
) -> go.Figure:
    """Plot the fall of the answer's log-probability without each document as bars, one series per method.

    y is in nats, float32 (D,) for each method, never NaN; above 0 the document supports the answer.

    Args:
        results: Result of one method, or those of `Engine.leave_one_out`.
        order: Document, as entered, in each slot.
        labels: Labels of the methods.
    """
    shown = list(results.values()) if isinstance(results, Mapping) else [results]
    names = method_labels([one.score.method for one in shown], labels)
    figure = new_figure(
        name="leave-one-out",
        title="Fall of the answer’s log-probability without each document",
        caption="Above 0: the answer is less likely without the document. Look for the tallest bar: the "
        f"answer needs this document most. Scores in {shown[0].dtype}.",
        height=260,
        showlegend=len(shown) > 1,
    )
    for one, name in zip(shown, names, strict=True):
        segments = document_segments(len(order or one.without), order)[: len(one.without)]
        figure.add_bar(
            x=[segment.label for segment in segments],
            y=np.array(one.differences, dtype=np.float32),
            name=name,
            marker={
                "color": [segment.color for segment in segments],
                "line": {"color": INK, "width": 1},
                "pattern": {"shape": bar_pattern(method_number(one.score.method))},
            },
            customdata=[segment.name for segment in segments],
            text=[format_short(value) for value in one.differences],
            textposition="outside",
            cliponaxis=False,
            hovertemplate="%{fullData.name}, without %{customdata}: %{y:.4g} nats<extra></extra>",
        )
    figure.update_xaxes(title="document", type="category")
    figure.update_yaxes(title="fall (nats)", showgrid=True, zeroline=True)
    return figure


def leave_one_out_sentence(
    result: "pine.LeaveOneOut", origin: AnswerOrigin, *, label: str, order: Sequence[int]
) -> str:
    """Compare the document that an answer needs most with the one that its decisive token attends to most.

    `order` has the document, as entered, in each slot.
    """
    slot = int(np.argmax(result.differences))
    needed, seen = (document_segment(document).name for document in (order[slot], origin.document))
    fall, share = format_short(result.differences[slot]), format_percent(origin.shares[origin.document])
    verdict = "Both agree" if needed == seen else "Attention misleads here"
    return (
        f"{label}: the answer needs {needed} most ({fall} nats less without it), and its decisive token "
        f"{quoted(origin.token)} attends most to {seen} ({share}, layer {origin.layer}, head {origin.head}). "
        f"{verdict}."
    )
