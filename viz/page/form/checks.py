"""Validation of a form against the limits of the host, and its tokens."""

from typing import TYPE_CHECKING

from pine_engine.errors import InputError
from pine_engine.prompts.layout import TokenLayout
from viz.drawing.identity import document_letter
from viz.page.common.host_settings import DEFAULTS, HostSettings
from viz.page.form.form import Form, form_prompt
from viz.page.form.limits import check_answer_length, check_prompt
from viz.page.form.read_only import check_shipped
from viz.page.form.words import capital

if TYPE_CHECKING:  # importing the engine imports torch, which would keep the page waiting
    from pine_engine.engine.engine import Engine

MAX_TEXT_CHARACTERS = 200_000
"""Maximum characters of one text; tokenizing a longer one takes too long."""


def check_form(form: Form, settings: HostSettings) -> None:
    """Raise InputError for the first value of the form beyond a limit of the host."""
    if settings.read_only:
        check_shipped(form)
    nouns = form.row.nouns
    if len(form.entries) > settings.max_documents:
        raise InputError(
            f"Too many {nouns.documents}: {len(form.entries)} (limit: {settings.max_documents}). Remove some."
        )
    texts = {nouns.named(document_letter(entry.identity)): entry.text + entry.title for entry in form.entries}
    for name, text in (texts | {nouns.question: form.question, "instruction": form.instruction}).items():
        if len(text) > MAX_TEXT_CHARACTERS:
            raise InputError(
                f"{capital(name)} too long: {len(text):,} characters (limit: {MAX_TEXT_CHARACTERS:,}). "
                "Shorten it."
            )
    check_answer_length(form.max_new_tokens, settings)


def form_layout(form: Form, engine: "Engine", settings: HostSettings = DEFAULTS) -> TokenLayout:
    """Return the tokens of the prompt, with documents in the order of their slots.

    The prompt is built in the order of the letters and then reordered, so that letters in it match the cards.
    Raises InputError for missing values and exceeded limits.
    """
    form.check()
    check_form(form, settings)
    lettered = sorted(form.entries, key=lambda entry: entry.identity)
    layout = engine.tokenize(form_prompt(form, lettered, engine.tokenizer))
    check_prompt(layout, settings)
    return layout.reorder(form.order)
