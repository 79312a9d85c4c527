"""A form that is whole and within what the host allows, as the tokens of its prompt."""

from typing import TYPE_CHECKING

from pine_engine.errors import InputError
from pine_engine.prompts.layout import TokenLayout
from viz.drawing.identity import document_letter
from viz.page.common.host_settings import DEFAULTS, HostSettings
from viz.page.form.form import Form, form_prompt
from viz.page.form.limits import check_answer_length, check_prompt
from viz.page.form.read_only import check_shipped

if TYPE_CHECKING:  # importing the engine imports torch, which would keep the page waiting
    from pine_engine.engine.engine import Engine

LONGEST_TEXT = 200_000
"""Characters of one text that are looked at; counting the tokens of a longer one would take its time."""


def check_form(form: Form, settings: HostSettings) -> None:
    """Raises InputError for the first thing in the form that is more than the host allows."""
    if settings.read_only:
        check_shipped(form)
    nouns = form.row.nouns
    if len(form.entries) > settings.max_documents:
        raise InputError(
            f"There are {len(form.entries)} {nouns.documents}, and this page takes "
            f"{settings.max_documents}; remove some."
        )
    texts = {nouns.named(document_letter(entry.identity)): entry.text + entry.title for entry in form.entries}
    for name, text in (texts | {nouns.question: form.question, "instruction": form.instruction}).items():
        if len(text) > LONGEST_TEXT:
            raise InputError(
                f"The {name} has {len(text):,} characters, and this page takes {LONGEST_TEXT:,}; shorten it."
            )
    check_answer_length(form.max_new_tokens, settings)


def form_layout(form: Form, engine: "Engine", settings: HostSettings = DEFAULTS) -> TokenLayout:
    """The tokens of the form's prompt, documents in the order of the slots.

    The prompt is written with the documents in the order of their letters and then reordered, so that a
    letter inside the prompt is the letter on the card.
    Raises InputError for what is missing, and for what is more than the host allows.
    """
    form.check()
    check_form(form, settings)
    lettered = sorted(form.entries, key=lambda entry: entry.identity)
    layout = engine.tokenize(form_prompt(form, lettered, engine.tokenizer))
    check_prompt(layout, settings)
    return layout.reorder(form.order)
