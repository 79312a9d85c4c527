"""Checks against the limits of the host, with messages that name the limit, and the tokens of a form.

A read-only host runs the built-in examples, and users cannot enter texts.
"""

from typing import TYPE_CHECKING

import pine_engine as pine
from pine_engine.errors import InputError
from pine_engine.prompts.layout import TokenLayout
from viz.drawing.identity import document_letter
from viz.page.common.failures import MAX_ANSWER_TOKENS, MAX_DOCUMENTS, MAX_ORDERS, check_limit
from viz.page.common.host_settings import DEFAULTS, HostSettings
from viz.page.form.documents import capital
from viz.page.form.examples import is_from_example, load_examples
from viz.page.form.form import Form, form_request

if TYPE_CHECKING:  # imports torch
    from pine_engine.backend import Backend

NOTE = "Demo mode: only the built-in examples can be run. Install PINE Explorer to use your own documents."

REFUSAL = f"{NOTE} Select an example and do not edit it."
NO_TEMPLATE_KWARGS = f"{NOTE} Remove the chat template arguments."
NO_FILES = f"{NOTE} File uploads are disabled."

MAX_TEXT_CHARACTERS = 200_000  # maximum characters of one text; tokenizing a longer one takes too long


def check_form(form: Form, settings: HostSettings) -> None:
    """Raise InputError for the first value of the form beyond a limit of the host."""
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


def form_layout(
    form: Form,
    engine: "Backend",
    settings: HostSettings = DEFAULTS,
    *,
    request: "pine.Request | None" = None,
) -> TokenLayout:
    """Return the tokens of the prompt, with documents in the order of their slots.

    The prompt is built in the order of the letters and then reordered, so that letters in it match the cards.
    request: request of the form with the date of its prompt, if it is stored. Raises InputError for missing
    values and exceeded limits.
    """
    form.check()
    check_form(form, settings)
    layout = (request or form_request(form, engine)).tokenize(engine)
    if why := too_long(layout.num_tokens // engine.ids_per_token, settings):
        raise InputError(why)
    return layout.reorder(form.order)


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


# Read-only pages


def check_shipped(form: Form) -> None:
    """Raise InputError for anything except documents of one example, in any order and number."""
    if not any(is_from_example(form, example) for example in load_examples()):
        raise InputError(REFUSAL)


def check_reference(answer: str, form: Form) -> None:
    """Raise InputError for a target answer that is not an answer of the example."""
    shipped = (example for example in load_examples() if is_from_example(form, example))
    if answer and not any(answer in example.answers for example in shipped):
        raise InputError(REFUSAL)
