"""Chats in the form of the OpenAI API, and their rendering by chat templates.

Templates are untrusted code: they are rendered in a sandbox and in bounded time.
"""

import json
import time
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import date, datetime
from functools import lru_cache
from typing import Annotated, Any, Literal, NamedTuple

from jinja2 import Environment, Template, TemplateRuntimeError, meta, nodes
from pydantic import AfterValidator, BeforeValidator, Field, JsonValue, TypeAdapter, ValidationError

from pine_engine.errors import InputError, ModelError, one_line
from pine_engine.input_validation import as_str, describe, sequence
from pine_engine.prompts.parse_errors import Problem, ValidationErrors, format_validation_errors, unexpected
from pine_engine.reprs import short_repr

MAX_MESSAGES = 1000  # each is one private-use character in the chat template, of which Unicode has 6,400


def _joined_parts(content: Any) -> Any:
    """Return the text of a content in parts, as OpenAI clients send it; other values as they are."""
    if not isinstance(content, list | tuple):
        return content
    for part in content:
        if (
            not isinstance(part, Mapping)
            or part.get("type") != "text"
            or not isinstance(part.get("text"), str)
        ):
            raise unexpected(part, 'text, or parts {"type": "text", "text": ...}')
    return "\n".join(part["text"] for part in content)


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
    # A message of a response has further fields, which are empty unless it calls a tool.
    fields = {key: field for key, field in value.items() if key in ("role", "content") or field}
    if other := sorted(map(str, fields.keys() - {"role", "content"})):
        raise unexpected(other[0], "the fields role and content only")
    return {**fields, "role": "system"} if fields.get("role") == "developer" else fields


def _check_turns(messages: list[Message]) -> list[Message]:
    """Raise unless a chat has system messages first, then turns, and a user message last."""
    roles = [message.role for message in messages]
    for index, message in enumerate(messages):
        if not message.content.strip():
            raise unexpected(message, f"text in message {index + 1}")
        if message.role == "system" and set(roles[:index]) - {"system"}:
            raise unexpected(message, f"system messages before all others; message {index + 1} is one")
    if roles and roles[-1] != "user":
        raise unexpected(messages[-1], "a user message at the end, which is the question")
    return messages


MessagesInput = Annotated[
    list[Annotated[Message, BeforeValidator(_message_fields)]],
    Field(max_length=MAX_MESSAGES),
    AfterValidator(_check_turns),
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


# Chat templates

KWARGS = "chat_template_kwargs"  # name of the arguments of a chat template in requests, options and errors
TEMPLATE_NAME = "chat_template"
"""Argument with the name of one of several chat templates, as in `apply_chat_template`."""
CLOCK = "strftime_now"
"""Function with which a chat template prints the date. Its argument is a date in ISO format."""
GIVEN = {"messages", "tools", "documents", "add_generation_prompt"}  # variables that are no arguments

ChatTemplateKwargs = dict[str, JsonValue]
"""Arguments of a chat template, such as {"enable_thinking": False}."""

_KWARGS_ADAPTER = TypeAdapter(dict[str, ChatTemplateKwargs])

RENDER_S = 2.0  # limit of rendering in seconds; templates of models need milliseconds

MAX_RESULT = 1_000_000
"""Maximum result of one multiplication or power, in items of a sequence or bits of an integer."""

_deadline: ContextVar[float] = ContextVar("deadline of the rendering", default=float("inf"))


def read_kwargs(kwargs: Mapping[str, Any] | None) -> ChatTemplateKwargs:
    """Return arguments of a chat template. Raises InputError unless they are an object of JSON."""
    try:
        return _KWARGS_ADAPTER.validate_python({KWARGS: {} if kwargs is None else kwargs})[KWARGS]
    except ValidationError as error:
        raise ValidationErrors(format_validation_errors(error)) from error


def parse_kwargs(text: str | None) -> ChatTemplateKwargs:
    """Return arguments of a chat template from JSON, none for an empty text. Raises InputError."""
    try:
        return read_kwargs(json.loads(text) if text and text.strip() else None)
    except (ValueError, RecursionError) as error:
        expected = 'expected JSON such as {"enable_thinking": false}'
        raise InputError(f"invalid {KWARGS}: got {text!r:.60}, {expected}", field=KWARGS) from error


def render_chat_template(
    tokenizer: Any, messages: Sequence[Mapping[str, Any]], kwargs: Mapping[str, Any]
) -> str:
    """Return the text of the messages and the beginning of the answer, as `apply_chat_template` does.

    Raises InputError for an argument that the template does not have, and ModelError if the template fails,
    is not safe, or does not end in RENDER_S seconds.
    """
    token = _deadline.set(time.monotonic() + RENDER_S)
    try:
        template, _ = _find_template(tokenizer, kwargs)
        values = {**tokenizer.special_tokens_map, **kwargs}
        if CLOCK in kwargs:
            values[CLOCK] = _read_date(kwargs[CLOCK]).strftime
        options = {"tools": None, "documents": None, "add_generation_prompt": True}
        return template.render(messages=messages, **options, **values)
    except InputError:
        raise
    except Exception as error:  # a template may raise anything that Python does
        message = f"the chat template cannot be rendered ({one_line(error)}); use another model"
        raise ModelError(message, field="chat_template") from error
    finally:
        _deadline.reset(token)


def with_date(tokenizer: Any, kwargs: ChatTemplateKwargs) -> ChatTemplateKwargs:
    """Return the arguments with the date of today, if the chat template prints the date and they have none.

    With these arguments, the prompt is the same on other days. Raises errors as `render_chat_template`.
    """
    if not getattr(tokenizer, "chat_template", None):
        return kwargs
    _, arguments = _find_template(tokenizer, kwargs)
    return {CLOCK: date.today().isoformat(), **kwargs} if CLOCK in arguments else kwargs


def _find_template(tokenizer: Any, kwargs: Mapping[str, Any]) -> "_CompiledTemplate":
    """Return the chat template for these arguments. Raises InputError if it does not have one of them."""
    found = _compile(_select_template(tokenizer, kwargs))
    if unknown := sorted(kwargs.keys() - found.arguments - {TEMPLATE_NAME}):
        names = ", ".join(sorted(found.arguments))
        expected = f"expected one of {names}" if names else "it has none"
        problem = f"unknown argument of the chat template: got {unknown[0]!r:.60}, {expected}"
        raise InputError(f"{problem}. Remove it from {KWARGS}.", field=KWARGS)
    return found


def _select_template(tokenizer: Any, kwargs: Mapping[str, Any]) -> str:
    """Return the chat template, or that of several which the arguments name. Raises InputError."""
    name, templates = kwargs.get(TEMPLATE_NAME), tokenizer.chat_template
    if isinstance(templates, str):
        if name is not None:
            message = f"the model has one chat template: got the name {name!r:.60}. Remove it from {KWARGS}."
            raise InputError(message, field=KWARGS)
        return templates
    name = "default" if name is None and "default" in templates else name
    if not isinstance(name, str) or name not in templates:
        choices, got = sorted(templates), "no name" if name is None else describe(name)
        problem = f"the model has several chat templates: got {got}, expected one of {', '.join(choices)}"
        how = f'Set {KWARGS} to {{"{TEMPLATE_NAME}": "{choices[0]}"}}.'
        raise InputError(f"{problem}. {how}", field=KWARGS)
    return str(templates[name])


def _read_date(value: Any) -> datetime:
    try:
        return datetime.fromisoformat(value)
    except (TypeError, ValueError) as error:
        message = f"invalid {CLOCK}: got {describe(value)}, expected a date such as 2026-11-27"
        raise InputError(f"{message}. Correct it in {KWARGS}.", field=KWARGS) from error


class _CompiledTemplate(NamedTuple):
    template: Template
    arguments: frozenset[str]  # names that the template may use and that are not always given


@lru_cache(maxsize=16)
def _compile(source: str) -> _CompiledTemplate:
    """Compile a template so that each loop and macro checks the deadline.

    The sandbox of jinja2 limits one `range`, but not loops within loops.
    """
    from transformers.utils.chat_template_utils import _compile_jinja_template

    environment: Any = _compile_jinja_template("").environment.overlay()
    environment.check_deadline = _check_deadline
    environment.intercepted_binops = frozenset(("*", "**"))
    environment.binop_table = environment.binop_table | {"*": _multiply, "**": _raise_to_power}
    tree = environment.parse(source)
    variables = meta.find_undeclared_variables(tree) - GIVEN  # without functions, such as the clock
    variables |= {node.name for node in tree.find_all(nodes.Name)} & {CLOCK}
    arguments = frozenset(name for name in variables if not name.endswith("_token"))
    for block in list(tree.find_all((nodes.For, nodes.Macro, nodes.CallBlock))):
        block.body.insert(0, nodes.ExprStmt(_call_check()))
        if isinstance(block, nodes.For) and block.test is not None:
            block.test = nodes.And(_call_check(), block.test)
    assert isinstance(environment, Environment)
    return _CompiledTemplate(environment.from_string(tree), arguments)


def _call_check() -> nodes.Call:
    return nodes.Call(nodes.EnvironmentAttribute("check_deadline"), [], [], None, None)


def _check_deadline() -> bool:
    if time.monotonic() > _deadline.get():
        raise TemplateRuntimeError(f"it takes more than {RENDER_S:g} s")
    return True


def _multiply(left: Any, right: Any) -> Any:
    if isinstance(left, int) and isinstance(right, int):
        _check_size(left.bit_length() + right.bit_length())
    else:  # a sequence and a number of repetitions, or fractions
        _check_size(_length(left) * _length(right))
    return left * right


def _raise_to_power(base: Any, exponent: Any) -> Any:
    if isinstance(base, int) and isinstance(exponent, int):
        _check_size(base.bit_length() * abs(exponent))
    return base**exponent


def _length(value: Any) -> int:
    if isinstance(value, int):
        return abs(value)
    return len(value) if hasattr(value, "__len__") else 1


def _check_size(size: int) -> None:
    if size > MAX_RESULT:
        raise TemplateRuntimeError(f"it computes a value of more than {MAX_RESULT:,} items")
