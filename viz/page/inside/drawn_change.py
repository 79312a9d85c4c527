"""Tab "Compare answers": two answers, and the attention on documents."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pine_engine.methods.table import METHODS
from viz.cards.compare import answers_picture
from viz.drawing.markup import empty_panel
from viz.drawing.picture import switch
from viz.drawing.text import shorten
from viz.figures.answer_attention import NO_TOKENS, plot_answer_attention
from viz.figures.answer_tokens import AnswerTokens, comparison_step
from viz.figures.next_token_candidates import plot_next_token_candidates
from viz.page.answers.answering import FinishedRun
from viz.page.common.failures import notice
from viz.page.inside.drawn import TabContent
from viz.page.inside.reading import query_of_step, step_of
from viz.page.inside.selection import Selection

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

ORDER_WIDTH = 16
"""Maximum characters of an order name on a button."""


@dataclass(frozen=True)
class Other:
    """Answer for comparison: its key in Selection.other and the label of its button."""

    key: str
    button: str
    answer: AnswerTokens


def draw_change(run: FinishedRun, selection: Selection) -> TabContent:
    """Draw the answer of the selected method and that of another method or order."""
    methods, orders = other_methods(run, selection.method), other_orders(run, selection.method)
    other = chosen_other(run, selection)
    left = run.answer_records[selection.method]
    if other and other.key in {order.key for order in orders}:
        left = replace(left, label=f"{left.label} (as run)")
    answers = [left] if other is None else [left, other.answer]
    pictures = [
        answers_picture(
            answers,
            dtype=run.dtype,
            queries=[str(query_of_step(run, step)) for step in range(len(left.tokens))],
            chosen=step_of(run, selection.query),
        ),
        switch(
            "Attention on the prefix (SYS)",
            [("shown", {"with_prefix": True}), ("left out", {"with_prefix": False})],
            "shown" if selection.with_prefix else "left out",
        ),
    ]
    figures = _figures(answers, selection.with_prefix) if any(record.tokens for record in answers) else {}
    pictures += [] if figures else [empty_panel(NO_TOKENS)]
    return TabContent(_switches(run, methods, orders, other) + "".join(pictures), figures)


def other_methods(run: FinishedRun, method: str) -> list[Other]:
    """Return the answers of the other methods of the run."""
    return [
        Other(f"method:{name}", METHODS[name].label, record)
        for name, record in run.answer_records.items()
        if name != method
    ]


def other_orders(run: FinishedRun, method: str) -> list[Other]:
    """Return the answers of the method in the other orders."""
    found = []
    for index, tried in enumerate(run.tried):
        if tried.order == run.order or method not in tried.answer_records:
            continue
        # Shortened names of long orders may be equal; their numbers differ.
        name = f"{index + 1}: {shorten(tried.label, ORDER_WIDTH)}"
        label = f"{METHODS[method].label} (order {name})"
        found.append(Other(f"order:{index}", name, replace(tried.answer_records[method], label=label)))
    return found


def chosen_other(run: FinishedRun, selection: Selection) -> Other | None:
    """Return the selected answer, else the first that differs (methods before orders), else the first.

    Returns None if the run has a single answer.
    """
    methods, orders = other_methods(run, selection.method), other_orders(run, selection.method)
    ids = run.answer_records[selection.method].token_ids
    differing = [[other for other in kind if other.answer.token_ids != ids] for kind in (methods, orders)]
    chosen = [other for other in methods + orders if other.key == selection.other]
    preferred = [*chosen, *differing[0], *methods, *differing[1], *orders]
    return preferred[0] if preferred else None


def _figures(answers: list[AnswerTokens], with_prefix: bool) -> "dict[str, Figure]":
    """Plot the attention of one answer; for two answers also their first differing token."""
    figures = {"answer-shares": plot_answer_attention(answers, with_prefix=with_prefix)}
    if len(answers) == 2:
        step = comparison_step(*answers)
        figures["likely-tokens"] = plot_next_token_candidates(*answers)
        figures["token-shares"] = plot_answer_attention(answers, step=step, with_prefix=with_prefix)
    return figures


def _switches(run: FinishedRun, methods: list[Other], orders: list[Other], other: Other | None) -> str:
    chosen = other.button if other else ""
    html = _switch("Compare with", methods, chosen) + _switch(
        "Or with the same method, order", orders, chosen
    )
    if orders or len(run.order) == 1:
        return html
    return html + notice("Press Shuffle above to compare orders.")


def _switch(label: str, others: list[Other], chosen: str) -> str:
    return switch(label, [(other.button, {"other": other.key}) for other in others], chosen) if others else ""
