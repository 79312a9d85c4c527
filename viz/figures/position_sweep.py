"""Figure and sentence of a position sweep: the log-probability of an answer by the slot of a document."""

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go

import pine_engine as pine
from viz.drawing.identity import document_segment
from viz.drawing.text import format_difference, join_words, shorten
from viz.figures.frame import method_labels, new_figure
from viz.theme import line_style, method_number

_MAX_ANSWER_CHARACTERS = 60


def plot_position_sweep(
    steps: "Sequence[pine.SlotScored]", *, slots: int | None = None, labels: Mapping[str, str] | None = None
) -> go.Figure:
    """Plot the log-probability of the answer by the slot of the document, one line per method.

    x counts slots from 1; y is in nats, float32 (S,) for each method, never NaN.

    Args:
        steps: Slots scored so far, from `sweep_document`.
        slots: Number of slots in all; default the number of steps.
        labels: Labels of the methods.
    """
    methods = list(steps[0].scores) if steps else []
    figure = new_figure(
        name="position-sweep",
        title="Answer log-probability by document slot",
        caption="A flat line means no position bias.",
        height=400,
    )
    for method, name in zip(methods, method_labels(methods, labels), strict=True):
        figure.add_scatter(
            x=[step.slot + 1 for step in steps],
            y=np.array([step.scores[method].total for step in steps], dtype=np.float32),
            name=name,
            **line_style(method_number(method)),
            hovertemplate="%{fullData.name}, slot %{x}: %{y:.4g} nats<extra></extra>",
            meta={"x": [{"tried": number, "method": method} for number in range(len(steps))]},
        )
    last = slots or len(steps)
    figure.update_xaxes(title="slot", dtick=1 if last <= 20 else 5, range=[0.5, last + 0.5])
    figure.update_yaxes(title="log-probability (nats)", showgrid=True)
    return figure


def sweep_sentence(
    steps: "Sequence[pine.SlotScored]",
    *,
    slots: int,
    document: int,
    answer: str,
    setting: str,
    labels: Mapping[str, str],
) -> str:
    """Describe the change of the log-probability of `answer` under each method, the largest change first."""
    letter = document_segment(document).label
    if len(steps) < 2:
        return f"Document {letter}: {len(steps)} of {slots} slots done ({setting})."
    values = {labels[method]: [step.scores[method].total for step in steps] for method in steps[0].scores}
    spreads = {label: max(totals) - min(totals) for label, totals in values.items()}
    changing = sorted((label for label in values if spreads[label]), key=lambda label: -spreads[label])
    constant = [label for label in values if not spreads[label]]
    clauses = []
    if changing:
        first, *others = changing
        totals = values[first]
        highest, lowest = (steps[totals.index(end)].slot + 1 for end in (max(totals), min(totals)))
        clauses = [
            f"{first}: range {format_difference(spreads[first])} nats (highest in slot {highest}, lowest in "
            f"slot {lowest})",
            *(f"{label}: range {format_difference(spreads[label])} nats" for label in others),
        ]
    if constant:
        clauses.append(f"{join_words(constant)}: constant (range 0.0)")
    through = f"{slots} slots" if len(steps) == slots else f"{len(steps)} of {slots} slots"
    quoted = f"“{shorten(' '.join(answer.split()), _MAX_ANSWER_CHARACTERS)}”"
    moved = f"Log-probability of {quoted} as document {letter} moves through {through} ({setting})"
    return "".join(f"{clause}. " for clause in [moved, *clauses]).rstrip()
