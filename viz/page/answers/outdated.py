"""Results that belong to something else than what the form holds by now: to what, and what has changed."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gradio as gr

from pine_engine.methods.table import METHODS
from pine_engine.prompts.tasks import get_task
from viz.drawing.identity import document_letter
from viz.drawing.markup import render
from viz.page.form.form import Form

if TYPE_CHECKING:
    from viz.page.jobs.model_pool import Choice


@dataclass(frozen=True)
class Origin:
    """What results were computed for."""

    form: Form
    model: "Choice | None" = None
    """That was chosen; None for the host's."""

    recorded: bool = False
    """Whether they were recorded: no visitor has chosen methods and length then."""

    is_for_all_orders: bool = False
    """The results are shown per order, so that another order of the documents outdates none."""


@dataclass(frozen=True)
class Results:
    """The widgets in front of results."""

    origin: gr.State
    """Origin, or None where there are none yet."""

    note: gr.HTML
    """That they are outdated; what follows it is grey then."""


def build_results(origin: Origin | None = None, **options: Any) -> Results:
    """Makes the widgets. origin: to what the results belong that are there already. options: of gr.HTML."""
    return Results(gr.State(origin), gr.HTML("", **options))


def no_results(results: Results) -> dict[Any, Any]:
    """Updates for a job that begins."""
    return {results.origin: None, results.note: ""}


def changes(origin: Origin, form: Form, model: "Choice | None") -> list[str]:
    """What is different in the form and the model by now, in words; nothing if results hold for both."""
    before, nouns = origin.form, form.row.nouns
    if before.task != form.task:
        return ["the kind of question"]
    then, now = ({one.identity: (one.title, one.text) for one in each.entries} for each in (before, form))
    edited = [document_letter(letter) for letter in sorted(then.keys() & now) if then[letter] != now[letter]]
    different = {
        f"the number of {nouns.documents}": len(then) != len(now),
        f"the text of {_listed(edited)}": bool(edited),
        "the order": not origin.is_for_all_orders and len(then) == len(now) and before.order != form.order,
        f"the {nouns.question}": before.question.strip() != form.question.strip(),
        "the instruction": _instruction(before) != _instruction(form),
        "the methods": not origin.recorded and before.methods != form.methods,
        "the answer length": not origin.recorded and before.max_new_tokens != form.max_new_tokens,
        "the model": origin.model != model,
    }
    return [what for what, is_different in different.items() if is_different]


def outdated_html(origin: Origin | None, form: Form, model: "Choice | None", *, press: str) -> str:
    """HTML: to what the results belong, what has changed, and a button that runs again; "" if they hold.

    origin: None where there are no results. press: id of the button that brings new ones.
    """
    changed = changes(origin, form, model) if origin else []
    if origin is None or not changed:
        return ""
    before = origin.form
    return render(
        "outdated.html",
        order=[document_letter(letter) for letter in before.order],
        question=before.question.strip() if before.row.needs_question else "",
        methods=[METHODS[name].label for name in before.methods],
        changed=_listed(changed),
        press=press,
    )


def _instruction(form: Form) -> str:
    return form.instruction.strip() or get_task(form.task).instruction.strip()


def _listed(words: list[str]) -> str:
    """The words with commas, and "and" before the last."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))
