"""Rendering of chats by chat templates, with arguments.

Templates are untrusted code: they are rendered in a sandbox and in bounded time.
"""

import json
import textwrap
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from functools import lru_cache
from typing import Any

from jinja2 import Template, TemplateError, meta, nodes
from pydantic import JsonValue, TypeAdapter, ValidationError

from pine_engine.errors import InputError, ModelError, PineError, one_line
from pine_engine.input_validation import describe
from pine_engine.prompts.template_limits import compile_limited, limited
from pine_engine.rows.parse_errors import ValidationErrors, format_validation_errors

KWARGS = "chat_template_kwargs"  # name of the arguments of a chat template in requests, options and errors
TEMPLATE_NAME = "chat_template"
"""Argument with the name of one of several chat templates, as in `apply_chat_template`."""
CLOCK = "strftime_now"
"""Function with which a chat template prints the date. Its argument is a date in ISO format."""
GIVEN = {"messages", "tools", "documents", "add_generation_prompt"}  # variables that are no arguments

ChatTemplateKwargs = dict[str, JsonValue]
"""Arguments of a chat template, such as {"enable_thinking": False}."""

_KWARGS_ADAPTER = TypeAdapter(dict[str, ChatTemplateKwargs])

MAX_REASON = 160  # characters of a template's reason to reject messages, in an error


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


def dump_kwargs(kwargs: Mapping[str, Any] | None) -> str:
    """Return arguments of a chat template as JSON, "" for none."""
    return json.dumps(kwargs) if kwargs else ""


def render_chat_template(
    tokenizer: Any, messages: Sequence[Mapping[str, Any]], kwargs: Mapping[str, Any]
) -> str:
    """Return the text of the messages and the beginning of the answer, as `apply_chat_template` does.

    Raises InputError for an argument that the template does not have, and ModelError if the template fails,
    is not safe, or exceeds a limit, with the field "messages" if it rejects the messages.
    """
    try:
        template, _ = _find_template(tokenizer, kwargs)
        values = {**tokenizer.special_tokens_map, **kwargs}
        if CLOCK in kwargs:
            values[CLOCK] = _read_date(kwargs[CLOCK]).strftime
        options = {"tools": None, "documents": None, "add_generation_prompt": True}
        with limited([messages, values]):
            return template.render(messages=messages, **options, **values)
    except PineError:
        raise
    except Exception as error:  # a template may raise anything that Python does
        if type(error) is TemplateError:  # raised by the template itself; failures are subclasses
            reason = textwrap.shorten(str(error)[: 2 * MAX_REASON], MAX_REASON, placeholder=" ...")
            message = f"the chat template rejects the messages: {reason.rstrip('.')}. Change their roles."
            raise ModelError(message, field="messages") from error
        raise _unusable(error) from error


def with_date(tokenizer: Any, kwargs: ChatTemplateKwargs) -> ChatTemplateKwargs:
    """Return the arguments with the date of today, if the chat template prints the date and they have none.

    With these arguments, the prompt is the same on other days. Raises errors as `render_chat_template`.
    """
    if not getattr(tokenizer, "chat_template", None):
        return kwargs
    _, arguments = _find_template(tokenizer, kwargs)
    return {CLOCK: date.today().isoformat(), **kwargs} if CLOCK in arguments else kwargs


def _find_template(tokenizer: Any, kwargs: Mapping[str, Any]) -> tuple[Template, frozenset[str]]:
    """Return the chat template for these arguments, and the names of those that it may use.

    Raises InputError if it does not have one of them, and ModelError if it cannot be compiled.
    """
    try:
        template, arguments = _compile(_select_template(tokenizer, kwargs))
    except (TemplateError, RecursionError) as error:
        raise _unusable(error) from error
    if unknown := sorted(kwargs.keys() - arguments - {TEMPLATE_NAME}):
        names = ", ".join(sorted(arguments))
        expected = f"expected one of {names}" if names else "it has none"
        problem = f"unknown argument of the chat template: got {unknown[0]!r:.60}, {expected}"
        raise InputError(f"{problem}. Remove it from {KWARGS}.", field=KWARGS)
    return template, arguments


def _unusable(error: Exception) -> ModelError:
    message = f"the chat template cannot be rendered ({one_line(error)}); change messages or {KWARGS}"
    return ModelError(message, field="chat_template")


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


@lru_cache(maxsize=16)
def _compile(source: str) -> tuple[Template, frozenset[str]]:
    """Compile a template with limits; also return the names that it may use and that are not always given."""
    from transformers.utils.chat_template_utils import _compile_jinja_template

    tree, finish = compile_limited(_compile_jinja_template("").environment, source)
    variables = meta.find_undeclared_variables(tree) - GIVEN  # without functions, such as the clock
    variables |= {node.name for node in tree.find_all(nodes.Name)} & {CLOCK}
    return finish(), frozenset(name for name in variables if not name.endswith("_token"))
