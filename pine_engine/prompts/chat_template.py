"""Rendering of chat templates, which are untrusted code, in a sandbox and in bounded time."""

import time
from collections.abc import Sequence
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

from jinja2 import Environment, Template, TemplateRuntimeError, nodes

from pine_engine.errors import ModelError, one_line

RENDER_S = 2.0  # limit of rendering in seconds; templates of models need milliseconds

MAX_RESULT = 1_000_000
"""Maximum result of one multiplication or power, in items of a sequence or bits of an integer."""

_deadline: ContextVar[float] = ContextVar("deadline of the rendering", default=float("inf"))


def render_chat_template(tokenizer: Any, messages: Sequence[dict[str, str]]) -> str:
    """Return the text of the messages and the beginning of the answer, as `apply_chat_template` does.

    Raises ModelError if the template fails, is not safe, or does not end in RENDER_S seconds.
    """
    token = _deadline.set(time.monotonic() + RENDER_S)
    try:
        options = {"tools": None, "documents": None, "add_generation_prompt": True}
        template = _compile(tokenizer.get_chat_template())
        return template.render(messages=messages, **options, **tokenizer.special_tokens_map)
    except Exception as error:  # a template may raise anything that Python does
        message = f"the chat template cannot be rendered ({one_line(error)}); use another model"
        raise ModelError(message, field="chat_template") from error
    finally:
        _deadline.reset(token)


@lru_cache(maxsize=16)
def _compile(source: str) -> Template:
    """Compile a template so that each loop and macro checks the deadline.

    The sandbox of jinja2 limits one `range`, but not loops within loops.
    """
    from transformers.utils.chat_template_utils import _compile_jinja_template

    environment: Any = _compile_jinja_template("").environment.overlay()
    environment.check_deadline = _check_deadline
    environment.intercepted_binops = frozenset(("*", "**"))
    environment.binop_table = environment.binop_table | {"*": _multiply, "**": _raise_to_power}
    tree = environment.parse(source)
    for block in list(tree.find_all((nodes.For, nodes.Macro, nodes.CallBlock))):
        block.body.insert(0, nodes.ExprStmt(_call_check()))
        if isinstance(block, nodes.For) and block.test is not None:
            block.test = nodes.And(_call_check(), block.test)
    assert isinstance(environment, Environment)
    return environment.from_string(tree)


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
