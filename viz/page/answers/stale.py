"""Out-of-date results: the changes since, and a notice that names them."""

from collections.abc import Collection

from pine_engine.methods.table import METHODS
from viz.drawing.identity import document_letter
from viz.drawing.markup import render
from viz.drawing.text import join_words
from viz.page.answers.run import Inputs, Shown


def changes(before: Inputs | None, now: Inputs, *, ignored: Collection[str] = ()) -> list[str]:
    """Describe the differences between the inputs of results and those of the page; empty without results."""
    if before is None or before == now:
        return []
    (old, old_model), (new, model) = before, now
    nouns = new.row.nouns
    if old.task != new.task:
        return ["task"]
    then, texts = ({one.letter: (one.title, one.text) for one in form.entries} for form in (old, new))
    both = sorted(then.keys() & texts)
    edited = [document_letter(letter) for letter in both if then[letter] != texts[letter]]
    different = {
        f"number of {nouns.documents}": len(then) != len(texts),
        f"text of {join_words(edited)}": bool(edited),
        "order": len(then) == len(texts) and old.order != new.order,
        nouns.question: old.question.strip() != new.question.strip(),
        "instruction": old.used_instruction != new.used_instruction,
        "methods": old.methods != new.methods,
        "max new tokens": old.max_new_tokens != new.max_new_tokens,
        "model": old_model != model,
    }
    return [name for name, is_different in different.items() if is_different and name not in ignored]


def ignored_by(shown: Shown) -> tuple[str, ...]:
    """Return the changes that do not outdate the answers, which are of all orders.

    Methods and length of recorded answers are fixed.
    """
    return ("order", "methods", "max new tokens") if shown.recorded else ("order",)


def stale_html(before: Inputs | None, now: Inputs, *, press: str, ignored: Collection[str] = ()) -> str:
    """Render the inputs of the results, the changes and a button that reruns; "" if there are no changes."""
    changed = changes(before, now, ignored=ignored)
    if before is None or not changed:
        return ""
    form = before[0]
    return render(
        "stale.html",
        order=[] if "order" in ignored else [document_letter(letter) for letter in form.order],
        question=form.question.strip() if form.row.needs_question else "",
        methods=[METHODS[name].label for name in form.methods],
        changed=join_words(changed),
        press=press,
    )
