"""All problems of a file or a request in one error, with line, field and expected value."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from pine_engine.errors import InputError
from pine_engine.input_validation import describe, describe_json

MAX_SHOWN = 20  # problems of a source that a message lists; parsing ends after more
MAX_JOINED = 3  # problems that a message in one line lists
MAX_KEYS = 8  # keys of an object that a message lists


@dataclass(frozen=True)
class Problem:
    """A message, the path of the field, such as "documents[1].text", and the number of the line from 1.

    The unit is "row" where rows of a file are no lines.
    """

    message: str
    field: str = ""
    line: int | None = None
    unit: str = "line"

    def __str__(self) -> str:
        return self.message if self.line is None else f"{self.unit} {self.line}: {self.message}"


class ValidationErrors(InputError):  # noqa: N818 - plural: it has all errors of a source
    """The problems, at least one, of a source, such as a file or a line of it."""

    def __init__(self, problems: Sequence[Problem], source: str = "") -> None:
        self.problems, self.source = tuple(problems), source
        count, most = len(self.problems), MAX_SHOWN if source else MAX_JOINED
        shown = list(_merged(self.problems[:most]) if source else map(str, self.problems[:most]))
        if not source:
            message = "; ".join([*shown, *[f"and {count - most} more"] * (count > most)])
        elif len(shown) == 1:
            message = f"{source}{': ' if problems[0].line is None else ', '}{shown[0]}"
        else:
            number = str(count) if count <= MAX_SHOWN else f"more than {MAX_SHOWN}"
            message = f"{source} has {number} mistakes:\n" + ";\n".join(shown)
        super().__init__(message, field=problems[0].field or None)

    def __reduce__(self) -> tuple[type["ValidationErrors"], tuple[tuple[Problem, ...], str]]:
        return type(self), (self.problems, self.source)


def _merged(problems: Sequence[Problem]) -> Iterator[str]:
    """Yield each message once, with the numbers of all lines that have it."""
    by_message: dict[str, list[Problem]] = {}
    for problem in problems:
        by_message.setdefault(problem.message, []).append(problem)
    for message, several in by_message.items():
        numbers = ", ".join(str(problem.line) for problem in several)
        is_one = len(several) == 1 or several[0].line is None
        yield str(several[0]) if is_one else f"{several[0].unit}s {numbers}: {message}"


def unusable_file(path: Path, problem: str) -> InputError:
    """Return the error of a whole file."""
    return InputError(f"{path} {problem}", field=str(path))


def unexpected(value: Any, expected: str) -> PydanticCustomError:
    """Return the error that a validator raises for a value of another form."""
    return PydanticCustomError("unexpected", "unexpected value", {"value": value, "expected": expected})


def unsupported(name: str, reason: str = "") -> PydanticCustomError:
    """Return the error that a validator raises for a key of an object that has no support, with a reason."""
    return PydanticCustomError("unsupported", "unsupported key", {"name": name, "reason": reason})


def invalid(message: str) -> PydanticCustomError:
    """Return the error that a validator raises with a message of its own."""
    return PydanticCustomError("invalid", "{message}", {"message": message})


def format_validation_errors(
    error: ValidationError, *, as_json: bool = False, given: Any = None
) -> list[Problem]:
    """Return the problems that pydantic found; values are quoted as JSON or as in Python.

    given: the object before its fields were renamed, whose keys are named if a field is missing.
    """
    problems = []
    for details in error.errors(include_url=False):
        if given is not None and details["type"] == "missing" and len(details["loc"]) == 1:
            details["input"] = given
        location, context = details["loc"], details.get("ctx", {})
        field = _path([*location, context["name"]] if details["type"] == "unsupported" else location)
        shown = field if field.isprintable() else ascii(field)  # a key in a file may be any text
        message = _message(details, describe_json if as_json else describe)
        problems.append(Problem(f"{shown}: {message}" if field else message, field))
    return problems


def _path(location: Iterable[int | str]) -> str:
    """Return the place of a value, such as documents[1].text."""
    return "".join(
        f"[{part}]" if isinstance(part, int) else f".{part:.60}" for part in location
    ).removeprefix(".")


_EXPECTED = {
    "string_type": "text",
    "string_too_short": "text of {min_length} or more characters",
    "list_type": "a list",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "dict_type": "an object",
    "model_type": "an object",
    "greater_than_equal": "{ge} or more",
    "less_than_equal": "{le} or less",
}
"""Expected values in words, by pydantic's type of the error; other types have pydantic's words."""


_MISSING: dict[int | str, str] = {
    "documents": 'a list of texts or of {"text", "title"}, in files also as ctxs, passages or context(s)'
}
"""Forms of required fields."""


def name_keys(value: Any) -> str:
    """Return the keys of an object, for a message."""
    if not isinstance(value, Mapping):
        return describe(value)
    return f"an object with {', '.join(map(ascii, islice(value, MAX_KEYS)))}" if value else "an empty object"


def _message(details: ErrorDetails, quote: Callable[[Any], str]) -> str:
    kind, message, got, context = details["type"], details["msg"], details["input"], details.get("ctx", {})
    if kind == "unexpected":
        return f"got {quote(context['value'])}, expected {context['expected']}"
    if kind == "unsupported":
        return f"it is not supported{context['reason'] and ', because '}{context['reason']}; remove it"
    if kind == "missing":
        expected = _MISSING.get(details["loc"][-1], "it")
        return f"it is missing, got {name_keys(got)}; give {expected}"
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        return f"got {quote(got)}, but there is no such field; remove it, or correct its name"
    if kind == "too_short":
        return f"got {context['actual_length']} items, expected {context['min_length']} or more"
    if kind == "too_long":
        return f"got {context['actual_length']:,} items, expected {context['max_length']:,} or fewer"
    if kind == "literal_error":
        names = context["expected"].replace("'", '"')
        return f"got {quote(got)}, expected {names}"
    if kind in _EXPECTED:
        return f"got {quote(got)}, expected {_EXPECTED[kind].format(**context)}"
    if message.startswith("Input should be "):
        return f"got {quote(got)}, expected {message.removeprefix('Input should be ')}"
    message = message.removeprefix("Value error, ")
    return message[:1].lower() + message[1:]
