"""Notice that results are out of date."""

from collections.abc import Sequence

from pine_engine.methods.table import METHODS
from viz.drawing.identity import document_letter
from viz.drawing.markup import render
from viz.drawing.text import join_words
from viz.page.form.form import Form


def stale_html(form: Form, changed: Sequence[str], *, press: str, with_order: bool = False) -> str:
    """Render the form of results, the changes since and a button that reruns; "" without changes."""
    if not changed:
        return ""
    return render(
        "stale.html",
        order=[document_letter(letter) for letter in form.order] if with_order else [],
        question=form.question.strip() if form.row.needs_question else "",
        methods=[METHODS[name].label for name in form.methods],
        changed=join_words(changed),
        press=press,
    )
