"""All that is wrong in a file in one error: each mistake with its line, its field, and what is expected."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from pine_engine.errors import InputError
from pine_engine.input_validation import describe

MOST_SHOWN = 20
"""Mistakes of a file that are told; of the others only how many they are."""

Raw = TypeVar("Raw")
Row = TypeVar("Row")


class ValidationErrors(InputError):  # noqa: N818
    """What is wrong with one value, such as a line of a file; several mistakes are told at once."""

    def __init__(self, *sentences: str) -> None:
        super().__init__("; ".join(sentences))
        self.sentences = sentences


def rows_or_mistakes(
    path: Path, lines: Iterable[tuple[int, Raw]], read: Callable[[int, Raw], Row]
) -> Iterator[tuple[int, Row]]:
    """What is read of each line, with the line's number, as it is asked for.

    From the first line on that cannot be read, the others are only checked.
    Raises InputError with the mistakes of all lines. read: may raise InputError.
    """
    found: list[str] = []
    for number, raw in lines:
        try:
            row = read(number, raw)
        except InputError as error:
            found += [f"line {number}: {sentence}" for sentence in _sentences(error)]
        else:
            if not found:
                yield number, row
    if found:
        raise InputError(told(str(path), ", ", found))


def told(where: str, joint: str, mistakes: Sequence[str]) -> str:
    """The mistakes of what is called where, as one sentence or as a list."""
    if len(mistakes) == 1:
        return f"{where}{joint}{mistakes[0]}"
    shown = list(mistakes[:MOST_SHOWN])
    if more := len(mistakes) - len(shown):
        shown.append(f"and {more} more")
    return f"{where} has {len(mistakes)} mistakes:\n" + ";\n".join(shown)


def format_validation_errors(error: ValidationError) -> list[str]:
    """Each of its problems as "field: what was got, what is expected"."""
    return [_sentence(problem) for problem in error.errors()]


def _sentences(error: InputError) -> Sequence[str]:
    return error.sentences if isinstance(error, ValidationErrors) else (str(error),)


def _sentence(problem: ErrorDetails) -> str:
    field = ".".join(map(str, problem["loc"]))
    shown = field if field.isprintable() else ascii(field)  # a name in the file may be any text
    return f"{shown}: {_words(problem)}" if shown else _words(problem)


def _words(problem: ErrorDetails) -> str:
    kind, message, got = problem["type"], problem["msg"], describe(problem["input"])
    if kind == "missing":
        return "it is missing; give it"
    if kind == "extra_forbidden":
        return f"got {got}, but there is no such field; remove it, or correct its name"
    if kind in _EXPECTED:
        return f"got {got}, expected {_EXPECTED[kind]}"
    if kind == "too_short":
        return f"got {problem['ctx']['actual_length']} items, expected {problem['ctx']['min_length']} or more"
    if kind == "too_long":
        context = problem["ctx"]
        return f"got {context['actual_length']:,} items, expected {context['max_length']:,} or fewer"
    if message.startswith("Input should be "):
        return f"got {got}, expected {message.removeprefix('Input should be ')}"
    own = message.removeprefix("Value error, ")
    return own[:1].lower() + own[1:]


_EXPECTED = {
    "string_type": "text",
    "list_type": "a list",
    "int_type": "a whole number",
    "dict_type": "an object",
    "model_type": "an object",
}
"""The commonest kinds in words; pydantic's own words do for the others."""
