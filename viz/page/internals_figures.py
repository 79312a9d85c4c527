"""Tabs of "Internals": HTML and figures of a finished run for one selection."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import plotly.graph_objects as go

import pine_engine as pine
import viz
from pine_engine.methods.table import FIRST_SCALED_LAYER, MAX_RATIO, MIN_RATIO, TUTORIAL_METHODS
from viz.cards.compare import answers_picture
from viz.cards.tutorial import CONTENT, paragraphs
from viz.drawing.identity import order_name
from viz.drawing.markup import empty_panel, render
from viz.drawing.pictures import switch
from viz.drawing.text import format_percent, join_words, shorten
from viz.figures.answer_attention import NO_TOKENS
from viz.figures.answer_tokens import AnswerTokens, comparison_step
from viz.figures.frame import document_labels
from viz.figures.head_decisiveness import decisiveness, most_decisive
from viz.figures.leave_one_out import leave_one_out_sentence
from viz.page.answers.run import Run
from viz.page.common.failures import notice
from viz.page.internals_jobs import AttentionView, attention_request, recorded_attention
from viz.page.queries import has_query, query_of_step, step_of, token_of, traced_answer
from viz.page.selection import Selection, shown_place
from viz.page.traced_run import has_attention, plan_of, ranked_trace

TABS = (
    ("attention", "Attention"),
    ("masks", "Attention masks"),
    ("positions", "RoPE positions"),
    ("importance", "Document importance"),
    ("change", "Compare answers"),
)
"""Name and label of each tab; `DRAWING` maps names to functions, except for "Attention"."""

FIGURES: dict[str, tuple[tuple[str, ...], ...]] = {
    "attention": (("attention",),),
    "masks": (("token-masks",),),
    "positions": (("positions",), ("position-map", "method-positions")),
    "importance": (
        ("decisive-heads", "importance"),
        ("answer-importance", "attention-shares", "leave-one-out"),
    ),
    "change": (("likely-tokens",), ("token-shares",), ("answer-shares",)),
}
"""Figures of each tab, in columns."""

NOT_COMPUTED = (
    "Click “Compute attention” to compare token-level attention of vanilla and the selected method."
)
NOT_RANKED = "None of these methods ranks documents. Select PINE and run again."
ALONE = "Ranking needs at least two documents."
NOT_WRITTEN = "The answer is empty."
NO_ATTENTION = (
    "This model runs as it is, so its attention is not recorded. Masks and positions are those of vanilla."
)
OVER = "This answer ended before the selected token. Select another query or method."

SCALED = {"documents": "documents", "documents_and_prefix": "documents and prefix"}
NORMALIZATIONS = {"raw": "raw", "share": "row-normalized", "log": "log scale"}

ORDER_WIDTH = 16  # maximum characters of an order name on a button


@dataclass(frozen=True)
class TabContent:
    """HTML above the figures; figures by place, see FIGURES. Missing places are empty."""

    html: str
    figures: dict[str, go.Figure] = field(default_factory=dict)


def of_method(figure: go.Figure, label: str) -> go.Figure:
    """Prefix the title of the figure with its method."""
    title = figure.layout.title.text
    return figure.update_layout(title_text=f"{label}: {title[:1].lower()}{title[1:]}")


def _switch(label: str, name: str, options: Mapping[Any, str], chosen: object) -> str:
    """Render a switch of one field of the selection: labels by value."""
    return switch(label, [(text, {name: value}) for value, text in options.items()], options.get(chosen, ""))


# Attention


def draw_attention(run: Run, selection: Selection, attention: AttentionView | None) -> TabContent:
    """Draw the last result if it belongs to this run, else the weights recorded with the run."""
    request = attention_request(run, selection)
    is_of_run = (
        attention and attention.request.layout == request.layout and attention.request.model == run.model
    )
    if not is_of_run:
        attention = recorded_attention(run)
    if attention is None:
        return TabContent(empty_panel(NOT_COMPUTED if has_attention(run) else NO_ATTENTION))
    shown = attention.request
    token = token_of(run, selection.query)
    figure = viz.plot_attention(
        {method: weights.astype("float32") for method, weights in attention.weights.items()},
        request.layout,
        with_sink=selection.with_sink,
        query=token if token < request.layout.num_tokens else None,
        order=run.order,
        labels={method: pine.METHODS[method].label for method in attention.weights},
    )
    figure.update_layout(title_text=f"Token-level attention, layer {shown.layer}, head {shown.head}")
    html = _switch(
        "First token (attention sink)", "with_sink", {False: "hidden", True: "shown"}, selection.with_sink
    )
    if shown != request:
        label = pine.METHODS[request.methods[-1]].label
        html += notice(
            f"Selected: {label}, layer {request.layer}, head {request.head}. Click “Compute attention”."
        )
    return TabContent(html, {"attention": figure})


# Masks


def draw_masks(run: Run, selection: Selection) -> TabContent:
    """Draw the prompt token by token, with the methods of the tutorial, run or not: masks need no model.

    Those that do not fit a model which runs as it is are left out.
    """
    added = [row.name for row in TUTORIAL_METHODS] if has_attention(run) else ["vanilla"]
    drawn = (*added, *run.result.traces)
    shown = [row for row in pine.METHODS.values() if row.name in drawn and row.has_plan]
    token = token_of(run, selection.query)
    figure = viz.plot_masks(
        [plan_of(run, row.name) for row in shown],
        query=token if token < run.result.layout.num_tokens else None,
        order=run.order,
    )
    count = len(run.order)
    selected, html = pine.METHODS[selection.method], ""
    if selected.key_weighting in SCALED and count > 1:
        scaled = SCALED[selected.key_weighting]
        html = notice(f"{selected.label}: question attention to {scaled} is scaled by 1/{count}.")
    elif not selected.has_plan:
        html = notice(
            f"{selected.label} has no mask of its own: it reorders the documents, prefills each of them "
            "alone, or recomputes tokens."
        )
    return TabContent(html, {"token-masks": figure})


# Positions


def draw_positions(run: Run, selection: Selection) -> TabContent:
    """Draw the documents for one query by layer or head and by method, and for all documents."""
    place, query, method = shown_place(run, selection), selection.query, selection.method
    options: dict[str, Any] = {
        "document" if query.kind == "document" else "query": query.index,
        "layer": place.layer,
        "head": place.head,
        "order": run.order,
    }
    labels = {name: pine.METHODS[name].label for name in run.result.traces if has_query(run, name, query)}
    figures = {}
    remark = empty_panel(OVER)
    if labels:
        traces = [run.result.traces[name] for name in labels]
        figures["method-positions"] = viz.plot_method_positions(traces, **options, labels=labels)
    if label := labels.get(method):
        trace = run.result.traces[method]
        positions = viz.plot_positions(trace, by=selection.rows, **options)
        figures["positions"] = of_method(positions, label)
        figures["position-map"] = of_method(viz.plot_position_map(trace, **options), label)
        remark, row = "", pine.METHODS[method]
        if row.position_scale == "per_head":
            remark = notice(
                f"{label}: positions before the division. From layer {FIRST_SCALED_LAYER} on, each head "
                f"divides positions by its ratio, from {MIN_RATIO:g} to less than {MAX_RATIO:g}."
            )
        elif trace.suffix_importance is None:
            ranked = ranked_trace(run)
            other = f" Select {pine.METHODS[ranked.method].label} to compare its heads." if ranked else ""
            remark = notice(f"{label} uses the same document positions in every layer and head.{other}")
        elif None in (selection.layer, selection.head):
            here = f"layer {place.layer}, head {place.head}"
            remark = notice(f"Positions cannot be averaged. Shown: {here} (most decisive).")
    rows = _switch("Rows", "rows", {"layer": "layers", "head": "heads"}, selection.rows)
    return TabContent(rows + remark, figures)


# Importance


def draw_importance(run: Run, selection: Selection) -> TabContent:
    """Draw the heads, the documents, the answer tokens and the attention shares of the selected method."""
    left_out = run.left_out.get(selection.method)
    figures: dict[str, go.Figure] = {}
    if left_out:
        figures["leave-one-out"] = viz.plot_leave_one_out(left_out, order=run.order)
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
        + _switch("Importance scale", "normalization", NORMALIZATIONS, selection.normalization)
        + _switch("Attention on", "with_prefix", prefix, selection.with_prefix)
    )


# What changed


def draw_change(run: Run, selection: Selection) -> TabContent:
    """Draw the answer of the selected method and that of another method or order."""
    others = other_answers(run, selection.method)
    other = chosen_other(run, selection)
    left = run.answer_records[selection.method]
    if other and other.startswith("order:"):
        left = replace(left, label=f"{left.label} (last run)")
    answers = [left, others[other][1]] if other else [left]
    prefix = {True: "shown", False: "hidden"}
    html = _other_switches(others, other)
    if len(run.order) > 1 and not any(key.startswith("order:") for key in others):
        html += notice("To compare orders, run all orders in the tab “See it” first.")
    html += answers_picture(
        answers,
        dtype=run.dtype,
        queries=[str(query_of_step(run, step)) for step in range(len(left.tokens))],
        chosen=step_of(run, selection.query),
    )
    html += _switch("Prefix", "with_prefix", prefix, selection.with_prefix)
    if not any(record.tokens for record in answers):
        return TabContent(html + empty_panel(NO_TOKENS))
    show = {"with_prefix": selection.with_prefix}
    figures = {}
    if len(answers) == 2:
        figures["likely-tokens"] = viz.plot_next_token_candidates(*answers)
    if not all(record.has_attention for record in answers):
        return TabContent(html + empty_panel(NO_ATTENTION), figures)
    figures["answer-shares"] = viz.plot_answer_attention(answers, **show)
    if len(answers) == 2:
        step = comparison_step(*answers)
        figures["token-shares"] = viz.plot_answer_attention(answers, step=step, **show)
    return TabContent(html, figures)


def other_answers(run: Run, method: str) -> dict[str, tuple[str, AnswerTokens]]:
    """Return button and answer of the other methods, then of the other orders, by their key."""
    found = {
        f"method:{name}": (pine.METHODS[name].label, record)
        for name, record in run.answer_records.items()
        if name != method
    }
    for index, (order, answers) in enumerate(run.other_orders):
        if method in answers.records:
            # Shortened names of long orders may be equal; their numbers differ.
            name = f"{index + 1}: {shorten(order_name(order), ORDER_WIDTH)}"
            label = f"{pine.METHODS[method].label} (order {name})"
            found[f"order:{index}"] = name, replace(answers.records[method], label=label)
    return found


def chosen_other(run: Run, selection: Selection) -> str | None:
    """Return the key of the selected answer, else of the first that differs (methods before orders).

    Returns the first if none differs, and None if the run has a single answer.
    """
    others = other_answers(run, selection.method)
    if selection.other in others:
        return selection.other
    ids = run.answer_records[selection.method].token_ids
    return min(
        others, key=lambda key: (key.startswith("order:"), others[key][1].token_ids == ids), default=None
    )


def _other_switches(others: Mapping[str, tuple[str, AnswerTokens]], chosen: str | None) -> str:
    html = ""
    for kind, label in (("method:", "Compare with method"), ("order:", "Or with another order")):
        if buttons := {key: button for key, (button, _) in others.items() if key.startswith(kind)}:
            html += _switch(label, "other", buttons, chosen)
    return html


DRAWING: dict[str, Callable[[Run, Selection], TabContent]] = {
    "masks": draw_masks,
    "positions": draw_positions,
    "importance": draw_importance,
    "change": draw_change,
}
"""Drawing function of each tab."""


def how_to_read(tab: str) -> str:
    """Render the folded explanation."""
    return render("how_to_read.html", name=tab, sentences=paragraphs(CONTENT["how_to_read"][tab]))
