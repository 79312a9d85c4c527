"""Checks of a form: missing values, and the limits of the host, with messages that name the limit."""

from typing import TYPE_CHECKING

import pine_engine as pine
from pine_engine.errors import InputError
from pine_engine.prompts.layout import TokenLayout
from viz.drawing.identity import document_letter
from viz.page.common.host_settings import DEFAULTS, HostSettings
from viz.page.common.limits import MAX_ANSWER_TOKENS, MAX_DOCUMENTS, MAX_ORDERS, check_limit
from viz.page.form.documents import capital
from viz.page.form.form import Form, form_request
from viz.page.form.read_only import check_shipped

if TYPE_CHECKING:  # imports torch
    from pine_engine.backend import Backend

MAX_TEXT_CHARACTERS = 200_000  # maximum characters of one text; tokenizing a longer one takes too long


def check_form(form: Form, settings: HostSettings) -> None:
    """Raise InputError for the first value that is missing, invalid, or beyond a limit of the host."""
    form.check()
    if settings.read_only:
        check_shipped(form)
    nouns = form.row.nouns
    check_limit(f"Too many {nouns.documents}", len(form.entries), MAX_DOCUMENTS, "Remove some.")
    texts = {nouns.named(document_letter(entry.letter)): entry.text + entry.title for entry in form.entries}
    texts |= {nouns.question: form.question, "instruction": form.instruction}
    texts["chat template arguments"] = form.chat_template_kwargs
    for name, text in texts.items():
        problem = f"{capital(name)} too long"
        check_limit(problem, len(text), MAX_TEXT_CHARACTERS, "Shorten it.", unit=" characters")
    check_answer_length(form.max_new_tokens)


def checked_request(form: Form, engine: "Backend", settings: HostSettings) -> "pine.Request":
    """Return the request of a form, with documents in the order of their letters. Raises InputError."""
    check_form(form, settings)
    return form_request(form, engine)


def request_layout(
    request: "pine.Request", form: Form, engine: "Backend", settings: HostSettings
) -> TokenLayout:
    """Return the tokens of the prompt, with documents in the order of their slots.

    The prompt is built in the order of the letters and then reordered, so that letters in it match the cards.
    Raises InputError for a prompt that is too long.
    """
    layout = request.tokenize(engine)
    if why := too_long(layout.num_tokens // engine.ids_per_token, settings):
        raise InputError(why)
    return layout.reorder(form.order)


def form_layout(form: Form, engine: "Backend", settings: HostSettings = DEFAULTS) -> TokenLayout:
    """Return the tokens of the prompt of a form. Raises InputError for an invalid form."""
    return request_layout(checked_request(form, engine, settings), form, engine, settings)


def check_answer_length(max_new_tokens: int) -> None:
    """Raise InputError for too many new tokens."""
    check_limit("Max new tokens too high", max_new_tokens, MAX_ANSWER_TOKENS, "Choose a smaller value.")


def too_long(prompt_tokens: int, settings: HostSettings) -> str | None:
    """Describe why a prompt of this length is too long; None if it is not."""
    most = settings.max_prompt_tokens
    if most is None or prompt_tokens <= most:
        return None
    return f"Prompt too long: {prompt_tokens:,} tokens (limit: {most:,}). Shorten or remove documents."


def check_orders(count: int) -> None:
    """Raise InputError for too many document orders."""
    check_limit("Too many orders", count, MAX_ORDERS, "Choose fewer orders or remove documents.")
