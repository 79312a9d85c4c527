"""The answer of the selected method beside that of another method or order."""

from collections.abc import Mapping
from dataclasses import replace

import pine_engine as pine
import viz
from viz.cards.compare import answers_picture
from viz.drawing.identity import order_name
from viz.drawing.markup import empty_panel
from viz.drawing.text import shorten
from viz.figures.answer_attention import NO_TOKENS
from viz.figures.answer_tokens import AnswerTokens, comparison_step
from viz.page.answers.run import Run
from viz.page.common.failures import notice
from viz.page.internals.content import NO_ATTENTION, TabContent, field_switch
from viz.page.queries import query_of_step, step_of
from viz.page.selection import Selection

ORDER_WIDTH = 16  # maximum characters of an order name on a button


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
    html += field_switch("Prefix", "with_prefix", prefix, selection.with_prefix)
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
            html += field_switch(label, "other", buttons, chosen)
    return html
