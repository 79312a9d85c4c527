"""Chats in rows of data sets: messages with role and content, or from and value, and texts of HH-RLHF."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from pine_engine.input_validation import MAX_SHOWN, describe
from pine_engine.rows.cells import parse_cell
from pine_engine.rows.parse_errors import Problem, ValidationErrors

MAX_ROLES = 4  # that a message lists

_SPEAKER_KEYS, _TEXT_KEYS = ("role", "from"), ("content", "value")

_ROLES = {
    **dict.fromkeys(("user", "human", "prompter"), "user"),
    **dict.fromkeys(("assistant", "gpt", "chatgpt", "model", "bot", "chatbot", "ai"), "assistant"),
    **dict.fromkeys(("system", "developer"), "system"),
}
"""Roles by their names in data sets, in lower case. Others, such as tool, are kept."""

_HH_TURN = re.compile(r"(?:\A\s*|\n\n)(Human|Assistant):[ \t]?")
"""Start of a turn in texts of HH-RLHF."""

_MESSAGES = re.compile(r"\s*\[\s*\{")
"""Start of a list of messages in a text."""


class Turn(NamedTuple):
    """One message of a chat."""

    role: str
    text: str


def find_chat(value: Any, field: str) -> list[Turn] | None:
    """Return the turns of a chat, None for another value.

    A chat is a message, a list of messages, also as JSON, an object with a list of roles and one of texts, or
    a text of HH-RLHF, which begins with "Human:". Raises ValidationErrors with the field for a message
    without text.
    """
    if isinstance(value, str):
        if value.lstrip().startswith("Human:") and "\n\nAssistant:" in value:
            _, *parts = _HH_TURN.split(value)
            return [
                Turn(_ROLES[role.lower()], text.strip())
                for role, text in zip(parts[::2], parts[1::2], strict=True)
            ]
        with suppress(ValueError):
            value = parse_cell(value) if _MESSAGES.match(value) else value
    if isinstance(value, Mapping):
        keys = _keys(value)
        columns = [value[key] for key in keys] if keys else []
        if keys and all(isinstance(column, list) for column in columns):  # columns in place of messages
            value = [dict(zip(keys, cells, strict=False)) for cells in zip(*columns, strict=False)]
        else:
            value = [value]
    if not isinstance(value, list) or not value:
        return None
    found = [(_keys(one), one) if isinstance(one, Mapping) else (None, one) for one in value]
    if not all(keys and isinstance(one[keys[0]], str) for keys, one in found):
        return None
    turns = []
    for keys, one in found:
        assert keys, "checked above"
        role = str(one[keys[0]])
        turns.append(Turn(_ROLES.get(role.lower(), role), _text(one[keys[1]], field)))
    return turns


def _keys(message: Mapping[Any, Any]) -> tuple[str, str] | None:
    """Return the keys of role and text, None for an object that is no message."""
    speaker = next((key for key in _SPEAKER_KEYS if key in message), None)
    text = next((key for key in _TEXT_KEYS if key in message), None)
    return (speaker, text) if speaker and text else None


def _text(content: Any, field: str) -> str:
    """Return the text of a content, which may be in parts."""
    texts: list[str] = []
    for part in content if isinstance(content, list) else [content]:
        text = part.get("text") if isinstance(part, Mapping) else "" if part is None else part
        if not isinstance(text, str):
            problem = f"{field}: a message of the chat has no text: got {describe(part)}, expected text"
            raise ValidationErrors([Problem(f"{problem}; remove the row", field)])
        texts.append(text)
    return "\n".join(texts)


def split_reply(turns: Sequence[Turn], field: str) -> tuple[list[Turn], str]:
    """Return the turns before the last one, and the text of the last one, which has to be the assistant's."""
    *context, last = turns
    if last.role != "assistant" or not last.text.strip():
        got = f"a message of {last.role!r:.30}" if last.text.strip() else "an empty message"
        problem = f"{field}: the chat has no answer: got {got} at the end, expected one of the assistant"
        raise ValidationErrors([Problem(f"{problem}; complete the chat or remove the row", field)])
    return context, last.text


def reply_of(value: Any, field: str) -> Any:
    """Return the last message of a chat, which has to be the assistant's; other values as they are."""
    turns = find_chat(value, field)
    return value if turns is None else split_reply(turns, field)[1]


def replies_of(value: Any, field: str) -> Any:
    """Return a list of texts in which the last message replaces each chat; one chat is one text."""
    reply = reply_of(value, field)
    if isinstance(reply, list):
        return [reply_of(item, field) for item in reply]
    return [reply] if isinstance(reply, str) else reply


def compared_texts(
    answers: Sequence[tuple[str, Any]], prompt: tuple[str, Any], system: Any = ""
) -> tuple[Any, list[Any]]:
    """Return the question and the texts of the answers that a judge compares.

    The question has all that the answers have in common: system message, prompt, and the first messages of
    their chats. The text of a chat is its last message; if chats differ before, all messages from there on.
    Answers and prompt are chats or texts, with the names of their fields. Prompt and system may be empty.

    Raises:
        ValidationErrors: A chat has no answer at its end, or chats differ first in a message of the user.
    """
    chats = [(find_chat(value, field), field) for field, value in answers]
    histories = [split_reply(chat, field)[0] for chat, field in chats if chat]
    num_common = _common_length(histories)
    for (_, field), history in zip([one for one in chats if one[0]], histories, strict=True):
        if num_common < len(history) and history[num_common].role in ("user", "system"):
            got = f"got the {history[num_common].role} message {history[num_common].text[:MAX_SHOWN]!r}"
            problem = f"{field}: the chats differ before their answers: {got}, expected that of the others"
            raise ValidationErrors([Problem(f"{problem}; correct or remove the row", field)])
    texts = [
        value if chat is None else _transcript(chat[num_common:], "assistant")
        for (chat, _), (_, value) in zip(chats, answers, strict=True)
    ]
    common = histories[0][:num_common] if histories else []
    field, value = prompt
    requested = find_chat(value, field)
    if requested is None:
        if not isinstance(value, str):
            return value, texts  # no text, which is rejected as such
        requested = [Turn("user", value)]
    while requested and not requested[-1].text.strip():  # HH-RLHF: a turn that the answer begins
        requested.pop()
    known = {_words(turn.text) for turn in common}
    if requested and _words(requested[-1].text) not in known:
        common = [*requested, *common]
    if isinstance(system, str) and system.strip() and all(turn.role != "system" for turn in common):
        common = [Turn("system", system), *common]
    return _transcript(common, "user"), texts


def _common_length(histories: Sequence[Sequence[Turn]]) -> int:
    """Return the number of turns with which all histories begin, white space aside."""
    plain = [[(turn.role, _words(turn.text)) for turn in history] for history in histories]
    num_common = 0
    for turns in zip(*plain, strict=False):
        if len(set(turns)) > 1:
            break
        num_common += 1
    return num_common


def _words(text: str) -> str:
    return " ".join(text.split())


def _transcript(turns: Sequence[Turn], role: str) -> str:
    """Return the text of one message of the role, and other messages with their roles."""
    if [turn.role for turn in turns] == [role]:
        return turns[0].text
    return "\n\n".join(f"{turn.role.capitalize()}: {turn.text}" for turn in turns)


def check_no_chat(roles: Sequence[Any], field: str) -> Iterator[Problem]:
    """Yield the problem of answers whose roles, "" for none, are those of messages of one chat."""
    named = [_ROLES.get(str(role).lower()) for role in roles]
    if None not in named and set(named) != {"assistant"}:
        message = (
            f"the answers are messages of a chat: got the roles {', '.join(map(str, roles[:MAX_ROLES]))}"
        )
        yield Problem(f"{message}, expected one answer each; give the last message of each chat", field)
