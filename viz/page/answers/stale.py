"""Out-of-date results: their inputs, and the changes since."""

from dataclasses import dataclass

from pine_engine.methods.table import METHODS
from viz.drawing.identity import document_letter
from viz.drawing.markup import render
from viz.drawing.text import join_words
from viz.page.form.form import Form
from viz.page.jobs.sources import Choice


@dataclass(frozen=True)
class Origin:
    """Inputs of results."""

    form: Form
    model: Choice | None = None  # selected model; None for the model of the host
    recorded: bool = False  # True for recorded results, whose methods and length are fixed
    is_for_all_orders: bool = False
    """True if results are shown per order, so that reordering the documents does not outdate them."""


def changes(origin: Origin, form: Form, model: Choice | None) -> list[str]:
    """Describe the differences between the origin and the form with its model; empty if there are none."""
    before, nouns = origin.form, form.row.nouns
    if before.task != form.task:
        return ["task"]
    then, now = ({one.letter: (one.title, one.text) for one in each.entries} for each in (before, form))
    edited = [document_letter(letter) for letter in sorted(then.keys() & now) if then[letter] != now[letter]]
    different = {
        f"number of {nouns.documents}": len(then) != len(now),
        f"text of {join_words(edited)}": bool(edited),
        "order": not origin.is_for_all_orders and len(then) == len(now) and before.order != form.order,
        nouns.question: before.question.strip() != form.question.strip(),
        "instruction": before.used_instruction != form.used_instruction,
        "methods": not origin.recorded and before.methods != form.methods,
        "max new tokens": not origin.recorded and before.max_new_tokens != form.max_new_tokens,
        "model": origin.model != model,
    }
    return [what for what, is_different in different.items() if is_different]


def stale_html(origin: Origin | None, form: Form, model: Choice | None, *, press: str) -> str:
    """Render the origin of the results, the changes and a button that reruns; "" if there are no changes."""
    changed = changes(origin, form, model) if origin else []
    if origin is None or not changed:
        return ""
    before = origin.form
    return render(
        "stale.html",
        order=[] if origin.is_for_all_orders else [document_letter(letter) for letter in before.order],
        question=before.question.strip() if before.row.needs_question else "",
        methods=[METHODS[name].label for name in before.methods],
        changed=join_words(changed),
        press=press,
    )
