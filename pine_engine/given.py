"""What a caller gives, in the one form that the engine works on; a sentence where it can mean nothing."""

from collections.abc import Iterable, Mapping, Set
from typing import Any, TypeVar

from pine_engine.errors import InputError

Item = TypeVar("Item")

SHOWN = 40
"""Characters of a wrong value that a sentence shows."""


def in_words(given: Any) -> str:
    """A wrong value in a sentence: its kind, and how it begins."""
    if given is None or isinstance(given, bool):
        return str(given)
    if isinstance(given, str):
        return f"the text {given[:SHOWN]!r}"
    shown = " ".join(repr(given).split())
    return f"{type(given).__name__} {shown[:SHOWN] + ' ...' * (len(shown) > SHOWN)}"


def sequence(given: Any) -> tuple[Any, ...] | None:
    """The items of a list, an array, a tensor or anything else that has an order; None for what has none.

    A text is one value, not a sequence of letters.
    """
    listed = given.tolist() if hasattr(given, "tolist") else given
    if isinstance(listed, str | bytes | Mapping | Set) or not isinstance(listed, Iterable):
        return None
    return tuple(listed)


def one_or_more(given: Any, kind: type[Item], what: str, advice: str) -> tuple[Item, ...]:
    """A single value of that kind, or a sequence of them, as a tuple.

    what: the name of one of them. Raises InputError that names the first wrong one and ends with the advice.
    """
    if isinstance(given, kind):
        return (given,)
    items = sequence(given)
    if items is None:
        raise InputError(f"{what}s were given as {in_words(given)}; {advice}")
    for index, item in enumerate(items):
        if not isinstance(item, kind):
            raise InputError(f"{what} {index + 1} is {in_words(item)}; {advice}")
    return items


def whole_number(given: Any, what: str, *, least: int, unit: str = "") -> int:
    """An int, also one of numpy's or a tensor's. Raises InputError for anything else, and below least."""
    number = _as_int(given)
    if number is None or number < least:
        shown = in_words(given) if number is None else number
        raise InputError(f"the {what} is {shown}; give {least} or more{unit}")
    return number


def whole_numbers(given: Any, what: str, expected: str) -> tuple[int, ...]:
    """The ints of any sequence of whole numbers. Raises InputError that names the first item that is none."""
    if type(given) is tuple and all(type(number) is int for number in given):
        return given
    items = sequence(given)
    if items is None:
        raise InputError(f"{what} is {in_words(given)}; expected {expected}")
    numbers = []
    for place, item in enumerate(items):
        number = _as_int(item)
        if number is None:
            raise InputError(f"{what} holds {in_words(item)} at place {place}; expected {expected}")
        numbers.append(number)
    return tuple(numbers)


def _as_int(given: Any) -> int | None:
    plain = given.tolist() if hasattr(given, "tolist") else given
    return plain if isinstance(plain, int) and not isinstance(plain, bool) else None
