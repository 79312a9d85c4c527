"""Importance of the documents, and the attention on them while the answer was decoded."""

from typing import Any

import plotly.graph_objects as go

import pine_engine as pine
import viz
from viz.drawing.markup import empty_panel
from viz.drawing.pictures import switch
from viz.drawing.text import format_percent, join_words
from viz.figures.frame import document_labels
from viz.figures.head_decisiveness import decisiveness, most_decisive
from viz.figures.leave_one_out import leave_one_out_sentence
from viz.page.answers.run import Run
from viz.page.common.failures import notice
from viz.page.internals.content import NO_ATTENTION, TabContent, field_switch, of_method
from viz.page.queries import step_of, traced_answer
from viz.page.selection import Selection
from viz.page.traced_run import has_attention, ranked_trace

NOT_RANKED = "None of these methods ranks documents. Select PINE and run again."

ALONE = "Ranking needs at least two documents."

NOT_WRITTEN = "The answer is empty."

NORMALIZATIONS = {"raw": "raw", "share": "row-normalized", "log": "log scale"}


def draw_importance(run: Run, selection: Selection) -> TabContent:
    """Draw the heads, the documents, the answer tokens and the attention shares of the selected method."""
    left_out = run.left_out.get(selection.method)
    figures: dict[str, go.Figure] = {}
    if left_out:
        figures["leave-one-out"] = viz.plot_leave_one_out(
            left_out, order=run.order, labels={selection.method: pine.METHODS[selection.method].label}
        )
    if not has_attention(run):
        return TabContent(empty_panel(NO_ATTENTION), figures)
    trace, label = run.result.traces[selection.method], pine.METHODS[selection.method].label
    is_ranked, texts = trace.suffix_importance is not None, traced_answer(run, trace.method)
    place: dict[str, Any] = {"layer": selection.layer, "head": selection.head}
    scale: dict[str, Any] = {"normalization": selection.normalization, "order": run.order}
    missing, remarks = [], []
    if is_ranked:
        figures["decisive-heads"] = viz.plot_head_decisiveness(trace, **place)
    if is_ranked and len(run.order) > 1:
        document = selection.query.index if selection.query.kind == "document" else None
        figures["importance"] = viz.plot_importance(trace, **place, **scale, document=document)
    elif is_ranked:
        missing.append(ALONE)
    elif ranked := ranked_trace(run):
        other = pine.METHODS[ranked.method].label
        missing.append(f"{label} computes no importance. Choose {other} to see what it ranks.")
    else:
        missing.append(NOT_RANKED)
    if texts:
        step = step_of(run, selection.query)
        step = step if step is not None and step < len(texts) else None
        figures["answer-importance"] = viz.plot_answer_importance(trace, texts, **place, **scale, step=step)
        figures["attention-shares"] = viz.plot_attention_shares(
            trace, step=step, steps=len(texts), **place, with_rest=selection.with_prefix, order=run.order
        )
        origin = run.origins.get(trace.method)
        if left_out and origin and len(left_out.without) == len(run.order):
            remarks.append(leave_one_out_sentence(left_out, origin, label=label, order=run.order))
    else:
        missing.append(NOT_WRITTEN)
    if trace.document_weights is not None:
        names = document_labels(len(run.order), run.order)
        shares = zip(names, trace.document_weights, strict=True)
        shown = join_words([f"{name} {format_percent(weight)}" for name, weight in shares])
        remarks.append(f"Document weights from a first pass of {label}: {shown}.")
    return TabContent(
        _importance_switches(selection, trace) + "".join([*map(notice, remarks), *map(empty_panel, missing)]),
        {name: of_method(figure, label) for name, figure in figures.items()},
    )


def _importance_switches(selection: Selection, trace: "pine.Trace") -> str:
    options: list[tuple[str, dict[str, Any]]] = []
    if trace.suffix_importance is not None:
        layer, head = most_decisive(decisiveness(trace))
        options.append((f"Most decisive head: layer {layer}, head {head}", {"layer": layer, "head": head}))
    options += [
        ("Mean over heads", {"head": None}),
        ("Mean over layers and heads", {"layer": None, "head": None}),
    ]
    here = {"layer": selection.layer, "head": selection.head}
    if selection.head is None and selection.layer is not None:
        here = {"head": None}
    prefix = {True: "everything", False: "documents only"}
    return (
        switch("Head", options, next((text for text, what in options if what == here), ""))
        + field_switch("Importance scale", "normalization", NORMALIZATIONS, selection.normalization)
        + field_switch("Attention on", "with_prefix", prefix, selection.with_prefix)
    )
