"""Checks against the limits of the host, with messages that name the limit."""

from pine_engine.errors import InputError
from pine_engine.prompts.layout import TokenLayout
from viz.page.common.host_settings import HostSettings


def check_answer_length(max_new_tokens: int, settings: HostSettings) -> None:
    """Raise InputError for more new tokens than the host allows."""
    if max_new_tokens > settings.max_new_tokens:
        raise InputError(
            f"Max new tokens too high: {max_new_tokens:,} (limit: {settings.max_new_tokens}). "
            "Choose a smaller value."
        )


def too_long(prompt_tokens: int, settings: HostSettings) -> str | None:
    """Describe why a prompt of this length is too long; None if it is not."""
    most = settings.max_prompt_tokens
    if most is None or prompt_tokens <= most:
        return None
    return f"Prompt too long: {prompt_tokens:,} tokens (limit: {most:,}). Shorten or remove documents."


def check_prompt(layout: TokenLayout, settings: HostSettings) -> None:
    """Raise InputError for a prompt that is longer than the host allows."""
    if why := too_long(layout.num_tokens, settings):
        raise InputError(why)


def check_orders(count: int, settings: HostSettings) -> None:
    """Raise InputError for more document orders than the host allows."""
    if count > settings.max_orders:
        raise InputError(
            f"Too many orders: {count:,} (limit: {settings.max_orders}). "
            "Choose fewer orders or remove documents."
        )


def check_rows(count: int, settings: HostSettings) -> None:
    """Raise InputError for more examples than the host allows."""
    if count > settings.max_rows:
        raise InputError(
            f"Dataset too large: {count:,} examples (limit: {settings.max_rows}). Upload fewer, or run "
            "`python -m pine_engine evaluate` locally."
        )
