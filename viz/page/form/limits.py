"""What a visitor asks, held against what the host allows: a sentence with the limit and what to do."""

from typing import TYPE_CHECKING

from pine_engine.errors import InputError
from pine_engine.prompts.layout import TokenLayout
from viz.drawing.identity import document_letter
from viz.page.common.host_settings import HostSettings
from viz.page.form.read_only import check_shipped

if TYPE_CHECKING:  # the form is checked with what stands here
    from viz.page.form.form import Form

LONGEST_TEXT = 200_000
"""Characters of one text that are looked at; counting the tokens of a longer one would take its time."""


def check_form(form: "Form", settings: HostSettings) -> None:
    """Raises InputError for the first thing in the form that is more than the host allows."""
    if settings.read_only:
        check_shipped(form)
    nouns = form.row.nouns
    if len(form.entries) > settings.most_documents:
        raise InputError(
            f"There are {len(form.entries)} {nouns.documents}, and this page takes "
            f"{settings.most_documents}; remove some."
        )
    texts = {nouns.named(document_letter(entry.identity)): entry.text + entry.title for entry in form.entries}
    for name, text in (texts | {nouns.question: form.question, "instruction": form.instruction}).items():
        if len(text) > LONGEST_TEXT:
            raise InputError(
                f"The {name} has {len(text):,} characters, and this page takes {LONGEST_TEXT:,}; shorten it."
            )
    check_answer_length(form.max_new_tokens, settings)


def check_answer_length(max_new_tokens: int, settings: HostSettings) -> None:
    """Raises InputError for an answer that is longer than the host allows."""
    if max_new_tokens > settings.most_new_tokens:
        raise InputError(
            f"An answer of {max_new_tokens:,} tokens was asked for, and this page writes "
            f"{settings.most_new_tokens} at most; ask for a shorter one."
        )


def too_long(prompt_tokens: int, settings: HostSettings) -> str | None:
    """Why a prompt of so many tokens is not read here; None if it is."""
    most = settings.most_prompt_tokens
    if most is None or prompt_tokens <= most:
        return None
    return (
        f"The prompt has {prompt_tokens:,} tokens, and this page reads {most:,} at most; shorten or remove "
        "documents."
    )


def check_prompt(layout: TokenLayout, settings: HostSettings) -> None:
    """Raises InputError for a prompt that is longer than the host allows."""
    if why := too_long(layout.num_tokens, settings):
        raise InputError(why)


def check_orders(count: int, settings: HostSettings) -> None:
    """Raises InputError for more orders of one question than the host allows."""
    if count > settings.most_orders:
        raise InputError(
            f"{count:,} orders were asked for, and this page tries {settings.most_orders} at most; ask for "
            "fewer, or remove documents."
        )


def check_rows(count: int, settings: HostSettings) -> None:
    """Raises InputError for more rows than the host allows."""
    if count > settings.most_rows:
        raise InputError(
            f"There are {count:,} rows, and this page measures {settings.most_rows} at most; send fewer, or "
            "use `python -m pine_engine evaluate` on a machine of your own."
        )
