"""Limits on what a chat template computes: sizes of values, of the text, and time.

Templates are untrusted, and one operation of Python cannot be interrupted. So every value has a limited size,
and operations whose result can be much larger than their arguments are checked before they are computed.
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import reduce, wraps
from typing import Any

from jinja2 import Environment, Template, TemplateRuntimeError, nodes, pass_context
from jinja2.runtime import Context, str_join
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

RENDER_S = 2.0  # limit of rendering in seconds; templates of models need milliseconds

MAX_SIZE = 1_000_000
"""Maximum size of a value and of the text, in characters and items of containers in each other."""

SIZES_OF_INPUT = 8  # added to MAX_SIZE: the messages may occur in a value this many times

MAX_WIDTH = 10_000
"""Maximum width, precision or number of parts that an operation takes as an argument."""

MAX_BITS = 10_000  # of an integer

MAX_WORDS_SIZE = 20_000
"""Maximum size of a text for filters that search for words, which can take quadratic time."""

MAX_SOURCE = 200_000  # characters of a template, whose compilation takes seconds

WORD_FILTERS = {"pprint", "striptags", "urlize", "wordwrap", "xmlattr"}

WIDTH_ARGUMENTS = {
    *("center", "indent", "batch", "slice", "truncate", "wordwrap", "tojson", "round", "urlize"),
    *("ljust", "rjust", "zfill", "expandtabs", "to_bytes", "generate_lorem_ipsum", "repeat"),
}
"""Filters, methods and functions whose numbers are widths, precisions or counts."""

POWERS = {"round"}  # compute 10 to the power of their argument
MAX_POWER = 100


@dataclass
class RenderLimits:
    """Limits of one rendering, and the size of the text so far."""

    deadline: float = float("inf")
    max_size: int = MAX_SIZE
    text_size: int = 0

    def check_time(self) -> None:
        """Raise an error if the time is over."""
        if time.monotonic() > self.deadline:
            raise TemplateRuntimeError(f"it takes more than {RENDER_S:g} s")

    def check_size(self, size: int) -> None:
        """Raise an error for a value of this size if it is too large."""
        if size > self.max_size:
            raise TemplateRuntimeError(f"it computes a value of more than {self.max_size:,} items")


_limits: ContextVar[RenderLimits | None] = ContextVar("limits of the rendering", default=None)


def _current() -> RenderLimits:
    return _limits.get() or RenderLimits()


@contextmanager
def limited(inputs: Any) -> Iterator[None]:
    """Limit the rendering inside this block, for a template of these inputs."""
    limits = RenderLimits(time.monotonic() + RENDER_S, max_size=2**62)
    limits.max_size = MAX_SIZE + SIZES_OF_INPUT * _size(inputs, limits)
    token = _limits.set(limits)
    try:
        yield
    finally:
        _limits.reset(token)


def compile_limited(environment: Any, source: str) -> tuple[nodes.Template, Callable[[], Template]]:
    """Parse a template; return its nodes, and a function that compiles them with limits."""
    if len(source) > MAX_SOURCE:
        raise TemplateRuntimeError(f"it has more than {MAX_SOURCE:,} characters")
    bounded = environment.overlay(finalize=_count_text, optimized=False)
    bounded.intercepted_binops = frozenset(_BINARY)
    bounded.binop_table = bounded.binop_table | {name: _bounded(op) for name, op in _BINARY.items()}
    bounded.filters = {name: _bounded(function, name) for name, function in bounded.filters.items()}
    bounded.filters["sum"] = pass_context(_sum_filter)
    bounded.tests = {name: _bounded(function, name) for name, function in bounded.tests.items()}
    call = bounded.call

    def bounded_call(context: Context, function: Any, *args: Any, **options: Any) -> Any:
        if any(function is helper for helper in (_begin_block, _join_texts, _checked)):
            return function(*args)
        name = getattr(function, "__name__", "")
        method = getattr(function, "__wrapped__", function)  # the sandbox wraps `format`
        owner = getattr(method, "__self__", None)
        values = (owner if isinstance(owner, str | bytes | int) else None, *args)
        _check_call(name, values, options)
        return _checked(call(context, function, *args, **options))

    bounded.call = bounded_call
    bounded.begin_block, bounded.join_texts, bounded.checked = _begin_block, _join_texts, _checked
    tree = bounded.parse(source)

    def finish() -> Template:
        assert isinstance(bounded, Environment)
        limited = _Limiter().visit(tree)
        assert isinstance(limited, nodes.Template)
        return bounded.from_string(limited)

    return tree, finish


class _Limiter(NodeTransformer):
    """Insert checks where jinja2 has no hook: loops, macros, constant text, `~`, and containers."""

    def visit(self, node: nodes.Node, *_: Any, **__: Any) -> nodes.Node:
        self.generic_visit(node)
        if isinstance(node, nodes.For | nodes.Macro | nodes.CallBlock):
            node.body.insert(0, nodes.ExprStmt(_helper("begin_block")))
        if isinstance(node, nodes.For) and node.test is not None:
            node.test = nodes.And(_helper("begin_block"), node.test)
        if isinstance(node, nodes.Concat):
            return _helper("join_texts", *node.nodes)
        if isinstance(node, nodes.TemplateData):
            return nodes.Const(node.data)  # counted as text, as any expression
        if isinstance(node, nodes.List | nodes.Dict) or (
            isinstance(node, nodes.Tuple) and node.ctx == "load"
        ):
            return _helper("checked", node)
        return node


def _helper(name: str, *args: nodes.Expr) -> nodes.Call:
    return nodes.Call(nodes.EnvironmentAttribute(name), list(args), [], None, None)


def _begin_block() -> bool:
    _current().check_time()
    return True


@pass_context
def _count_text(_: Context, value: Any) -> Any:
    limits = _current()
    limits.check_time()
    limits.text_size += _size(value, limits)
    limits.check_size(limits.text_size)
    return value


def _checked(value: Any) -> Any:
    """Return a value that is not too large; items of an iterator are checked when they are computed."""
    limits = _current()
    limits.check_time()
    if isinstance(value, Iterator) and not isinstance(value, _OF_JINJA):
        return _checked_items(value, limits)
    _size(value, limits)
    return value


def _checked_items(items: Iterator[Any], limits: RenderLimits) -> Iterator[Any]:
    total = 0
    for item in items:
        limits.check_time()
        total += 1 + _size(item, limits)
        limits.check_size(total)
        yield item


_OF_JINJA = (Namespace,)


def _size(value: Any, limits: RenderLimits) -> int:
    """Return the size of a value with all that it contains. Raises TemplateRuntimeError if too large."""
    total, stack = 0, [value]
    while stack:
        item = stack.pop()
        total += 1
        if isinstance(item, str | bytes):
            total += len(item)
        elif isinstance(item, int):
            total += item.bit_length() // 4
            if item.bit_length() > MAX_BITS:
                raise TemplateRuntimeError(f"it computes an integer of more than {MAX_BITS:,} bits")
        else:
            children: Iterable[Any] = ()
            if isinstance(item, Namespace):
                item = item._Namespace__attrs
            if isinstance(item, Mapping):
                children = (part for pair in item.items() for part in pair)
            elif isinstance(item, list | tuple | set | frozenset) or type(item) in _VIEWS:
                children = item
            elif isinstance(item, range):
                total += len(item)
            if children:
                total += len(item)
                limits.check_size(total)
                stack.extend(children)
        if total > limits.max_size:
            limits.check_size(total)
    return total


_VIEWS: tuple[type, ...] = (type({}.keys()), type({}.values()), type({}.items()))


def _bounded(function: Callable[..., Any], name: str = "") -> Callable[..., Any]:
    """Return a filter, test or operator that is checked before and after it is computed."""

    @wraps(function)
    def run(*args: Any, **options: Any) -> Any:
        values = args[1:] if hasattr(function, "jinja_pass_arg") else args
        _check_call(name, values, options)
        return _checked(function(*args, **options))

    return run


def _check_call(name: str, values: tuple[Any, ...], options: Mapping[str, Any]) -> None:
    """Raise an error if a filter, method or function could compute a large value from these arguments."""
    limits = _current()
    limits.check_time()
    value, arguments = values[0] if values else None, (*values[1:], *options.values())
    if name in WIDTH_ARGUMENTS:
        widths = (one for one in arguments if isinstance(one, int | float))
        if any(abs(width) > (MAX_POWER if name in POWERS else MAX_WIDTH) for width in widths):
            raise TemplateRuntimeError(f"it calls {name} with a number of more than {MAX_WIDTH:,}")
    if name in WORD_FILTERS and _size(value, limits) > MAX_WORDS_SIZE:
        raise TemplateRuntimeError(f"it calls {name} for a text of more than {MAX_WORDS_SIZE:,} characters")
    if name in ("format", "format_map") and isinstance(value, str):
        _check_format(value, arguments, limits)
    elif name in _NUM_PLACES:
        amplifier = max((_amplifier(one) for one in arguments), default=1)
        limits.check_size(_NUM_PLACES[name](value, arguments) * amplifier)


def _amplifier(argument: Any) -> int:
    if isinstance(argument, int):
        return abs(argument)
    if isinstance(argument, str | bytes):
        return len(argument)
    if isinstance(argument, Mapping | tuple | list):  # a table of `translate`, separators of `tojson`
        values = argument.values() if isinstance(argument, Mapping) else argument
        return max(map(_amplifier, values), default=1)
    return 1


def _lines(value: Any, _: Any) -> int:
    return str(value).count("\n") + str(value).count("\t") + 1


def _occurrences(value: Any, arguments: tuple[Any, ...]) -> int:
    text, old = str(value), str(next(iter(arguments), ""))
    return (text.count(old) if old else len(text)) + 1


def _items(value: Any, arguments: tuple[Any, ...]) -> int:
    """Return the number of items that are joined, which are the argument of the method of a separator."""
    values = [one for one in (value, *arguments) if isinstance(one, list | tuple | set | Mapping | str)]
    return max((len(one) for one in values), default=1)


def _indented(value: Any, _: Any) -> int:
    """Return the number of items, each as often as it is inside others."""
    limits, total, stack = _current(), 0, [(value, 1)]
    while stack:
        item, depth = stack.pop()
        total += depth
        limits.check_size(total)
        if isinstance(item, Mapping | list | tuple):
            children = item.values() if isinstance(item, Mapping) else item
            stack.extend((child, depth + 1) for child in children)
    return total


_NUM_PLACES: dict[str, Callable[[Any, tuple[Any, ...]], int]] = {
    "center": lambda *_: 1,
    "ljust": lambda *_: 1,
    "rjust": lambda *_: 1,
    "zfill": lambda *_: 1,
    "expandtabs": _lines,
    "indent": _lines,
    "replace": _occurrences,
    "join": _items,
    "translate": lambda value, _: len(value),
    "tojson": _indented,
    "batch": lambda *_: 1,
    "slice": lambda *_: 1,
    "generate_lorem_ipsum": lambda *_: 1000,
}
"""Number of places where the largest argument can be inserted, by filter or method."""


def _check_format(pattern: str, arguments: Any, limits: RenderLimits) -> None:
    """Raise an error for a format with a large width, or whose result could be too large."""
    if re.search(r"{[^{}]*{", pattern):
        raise TemplateRuntimeError("it formats with a format")
    numbers = [int(number) for groups in _NUMBERS.findall(pattern) for number in groups if number]
    if "*" in pattern:
        numbers += [abs(one) for one in _flat(arguments) if isinstance(one, int)]
    width = max(numbers, default=0)
    if width > MAX_WIDTH:
        raise TemplateRuntimeError(f"it formats with a number of more than {MAX_WIDTH:,}")
    count = pattern.count("%") + pattern.count("{")
    limits.check_size(len(pattern) + count * (width + _size(arguments, limits)))


_NUMBERS = re.compile(r"(\d+)?(?:\.(\d+))?[hlL]?[a-zA-Z%}]")
"""Width and precision before the letter of a conversion, or the end of a replacement field."""


def _flat(arguments: Any) -> Iterator[Any]:
    for one in arguments if isinstance(arguments, tuple | list) else (arguments,):
        yield from one.values() if isinstance(one, Mapping) else (one,)


def _join_texts(*values: Any) -> str:
    limits = _current()
    limits.check_time()
    limits.check_size(sum(_size(value, limits) for value in values))
    return str_join(values)


def _add(left: Any, right: Any) -> Any:
    limits = _current()
    limits.check_size(_length(left) + _length(right))
    return left + right


def _multiply(left: Any, right: Any) -> Any:
    limits = _current()
    if isinstance(left, int) and isinstance(right, int):
        limits.check_size(left.bit_length() + right.bit_length())
    else:  # a sequence and a number of repetitions, or fractions
        sizes = [abs(one) if isinstance(one, int) else _size(one, limits) for one in (left, right)]
        limits.check_size(sizes[0] * sizes[1])
    return left * right


def _raise_to_power(base: Any, exponent: Any) -> Any:
    if isinstance(base, int) and isinstance(exponent, int) and base.bit_length() * abs(exponent) > MAX_BITS:
        raise TemplateRuntimeError(f"it computes an integer of more than {MAX_BITS:,} bits")
    return base**exponent


def _remainder(left: Any, right: Any) -> Any:
    if isinstance(left, str | bytes):
        pattern = left if isinstance(left, str) else left.decode("latin-1")
        _check_format(pattern, right, _current())
    return left % right


def _length(value: Any) -> int:
    return len(value) if hasattr(value, "__len__") else 1


_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": _add,
    "*": _multiply,
    "**": _raise_to_power,
    "%": _remainder,
}


def _sum_filter(
    context: Context, iterable: Iterable[Any], attribute: str | int | None = None, start: Any = 0
) -> Any:
    """Add the items one by one, each of them checked."""
    items = iterable
    if attribute is not None:
        items = context.environment.filters["map"](context, iterable, attribute=attribute)
    add = _bounded(_add)
    return reduce(add, items, start)
