"""Prompts as text in a TokenLayout whose ids are UTF-8 bytes, for models whose tokenizer is elsewhere.

Documents are then reordered and sorted as token ids are, and no part of a text is lost.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from pine_engine.prompts.layout import TokenLayout

ROLES = ("system", "user", "assistant")

HARMLESS = b"Hello"  # in place of each message

_FIRST_ROLE = 256  # ids from here on begin a message of each role; smaller ones are bytes


class TextTokenizer:
    """Tokenizer with one id per UTF-8 byte, and one control token per role, which begins a message."""

    bos_token_id = None
    special_tokens_map: Mapping[str, str] = {}
    chat_template = (
        "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}{% endfor %}<|assistant|>"
    )

    def get_added_vocab(self) -> dict[str, int]:
        """Return the ids of the control tokens."""
        return {f"<|{role}|>": _FIRST_ROLE + index for index, role in enumerate(ROLES)}

    def __call__(self, text: str, **_options: Any) -> dict[str, list[int]]:
        """Return the bytes of a text, in which nothing is a control token."""
        return {"input_ids": list(text.encode())}


def as_text(layout: TokenLayout) -> str | list[dict[str, str]]:
    """Return the messages of a chat in the form of the OpenAI API, or the text of a prompt without roles."""
    ids = layout.ids
    starts = [index for index, token in enumerate(ids) if token >= _FIRST_ROLE]
    if not starts:
        return bytes(ids).decode()
    # The last control token begins the answer.
    return [
        {"role": ROLES[ids[start] - _FIRST_ROLE], "content": bytes(ids[start + 1 : end]).decode()}
        for start, end in pairwise(starts)
    ]


def harmless(layout: TokenLayout) -> TokenLayout:
    """Return a prompt of the same form whose messages are HARMLESS, which no filter of prompts refuses."""
    roles, text = [token for token in layout.ids if token >= _FIRST_ROLE], tuple(HARMLESS)
    if not roles:
        return TokenLayout((), (text,), tuple(b"."))
    *messages, begin_answer = roles
    ids = [token for role in messages for token in (role, *text)]
    return TokenLayout(tuple(ids[: -len(text)]), (text,), (begin_answer,))
