"""Chats in the form of the OpenAI API."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter, ValidationError

from pine_engine.input_validation import as_str, sequence
from pine_engine.reprs import short_repr
from pine_engine.rows.parse_errors import (
    Problem,
    ValidationErrors,
    format_validation_errors,
    invalid,
    unexpected,
    unsupported,
)
from pine_engine.rows.untrusted_json import ListInput

MAX_MESSAGES = 1000  # each is one private-use character in the chat template, of which Unicode has 6,400

TEXT_PARTS = ("text", "input_text", "output_text")
"""Types of the parts of a content in /v1/chat/completions and, the last two, in /v1/responses."""

UNUSED_FIELDS = {
    *("id", "status", "phase", "name", "refusal", "annotations"),
    *("reasoning_content", "reasoning", "provider_specific_fields"),
}
"""Fields of messages that clients send back with earlier answers, and that the prompt does not have."""

NO_TOOLS = "there are no tools"
UNSUPPORTED_FIELDS = {
    **dict.fromkeys(("tool_calls", "function_call", "tool_call_id"), NO_TOOLS),
    "audio": "content is text",
}
"""Reasons why fields of messages have no support; others need none."""


def _joined_parts(content: Any) -> Any:
    """Return the text of a content in parts, as OpenAI clients send it; other values as they are."""
    if content is None:
        return ""
    if not isinstance(content, list | tuple):
        return content
    for part in content:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind not in TEXT_PARTS or not isinstance(part.get("text"), str):
            raise unexpected(
                part if kind in (None, *TEXT_PARTS) else kind, 'text, or parts {"type": "text", "text": ...}'
            )
    return "\n".join(part["text"] for part in content if part["text"])


@dataclass(frozen=True)
class Message:
    """One message of a chat."""

    role: Literal["system", "user", "assistant"]
    content: Annotated[str, BeforeValidator(_joined_parts)]

    __repr__ = short_repr


MessageLike = Message | Mapping[str, Any]
"""A message, or {"role": ..., "content": ...} of the OpenAI API."""


def _message_fields(value: Any) -> Any:
    if isinstance(value, Message):
        return value
    if not isinstance(value, Mapping):
        raise unexpected(value, '{"role": "user", "content": ...}')
    fields = {key: field for key, field in value.items() if key in ("role", "content") or field}
    if (kind := fields.pop("type", "message")) not in ("message", "text"):  # of OpenAI and lm-eval
        raise unexpected(kind, 'the type "message"')
    fields = {key: field for key, field in fields.items() if key not in UNUSED_FIELDS}
    if other := sorted(map(str, fields.keys() - {"role", "content"})):
        raise unsupported(other[0], UNSUPPORTED_FIELDS.get(other[0], ""))
    if fields.get("role") == "assistant":
        fields.setdefault("content", None)  # optional in the OpenAI API
    return {**fields, "role": "system"} if fields.get("role") == "developer" else fields


def _turns(messages: list[Message]) -> list[Message]:
    """Return the messages that have text, as the OpenAI API counts no others.

    Raises unless system messages are first, then turns, and a user message is last.
    """
    found = [(number, each) for number, each in enumerate(messages, start=1) if each.content.strip()]
    if messages and not found:
        raise invalid("no message has text, expected a user message, which is the question")
    has_turn = False
    for number, message in found:
        if message.role == "system" and has_turn:
            raise invalid(f"message {number} is a system message, expected before all others")
        has_turn = has_turn or message.role != "system"
    if found and (role := found[-1][1].role) != "user":
        raise invalid(f'got "{role}" as the role of the last message, expected "user", with the question')
    return [message for _, message in found]


MessagesInput = Annotated[
    ListInput[Annotated[Message, BeforeValidator(_message_fields)]],
    Field(max_length=MAX_MESSAGES),
    AfterValidator(_turns),
]
"""Chat in pydantic models, whose messages have each form of `MessageLike`."""

_ADAPTER = TypeAdapter(dict[str, MessagesInput])


@dataclass(frozen=True)
class Chat:
    """System message, earlier turns and question."""

    system: str
    turns: tuple[Message, ...]
    question: str


def read_chat(messages: Sequence[MessageLike] | None, *, question: str = "", system: str = "") -> Chat:
    """Return the parts of a chat, or question and system message if there are no messages.

    Raises InputError for other values, and for a question or a system message that is not that of the chat.
    """
    question, system = as_str(question, "question"), as_str(system, "system text")
    if messages is None:
        return Chat(system, (), question)
    items = sequence(messages)
    try:
        found = _ADAPTER.validate_python({"messages": messages if items is None else list(items)})["messages"]
    except ValidationError as error:
        raise ValidationErrors(format_validation_errors(error)) from error
    if not found:
        return Chat(system, (), question)
    texts = [message.content for message in found if message.role == "system"]
    chat = Chat("\n\n".join(texts), tuple(found[len(texts) : -1]), found[-1].content)
    for name, text in (("question", question), ("system", system)):
        if text and text != getattr(chat, name):
            advice = "messages contain the question and the system message; give either these or messages"
            raise ValidationErrors([Problem(f"got both {name} and messages; {advice}", name)])
    return chat
