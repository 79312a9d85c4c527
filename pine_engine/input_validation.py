"""What a caller gives, in the one form that the engine works on; a sentence where it can mean nothing."""

from collections.abc import Iterable, Mapping, Set
from typing import Any, Protocol, TypeVar

from pine_engine.errors import InputError, UnknownNameError


class Named(Protocol):
    """A row of a table."""

    @property
    def name(self) -> str:
        """What it is called where it is asked for."""


Row = TypeVar("Row", bound=Named)

SHOWN = 40
"""Characters of a wrong value that a sentence shows."""


def describe(given: Any) -> str:
    """A wrong value in a sentence: its kind, and how it begins."""
    if given is None or isinstance(given, bool):
        return str(given)
    if isinstance(given, str):
        return f"the text {given[:SHOWN]!r}"
    kind, shown = type(given).__name__, " ".join(repr(given).split())
    return ("" if shown.startswith(kind) else f"{kind} ") + shown[:SHOWN] + " ..." * (len(shown) > SHOWN)


def sequence(given: Any) -> tuple[Any, ...] | None:
    """The items of a list, an array, a tensor or anything else that has an order; None for what has none.

    A text is one value, not a sequence of letters. The items of a table are its rows.
    """
    listed = _plain(given)
    if isinstance(listed, str | bytes | Mapping | Set) or not isinstance(listed, Iterable):
        return None
    return tuple(listed)


def as_tuple_of(
    given: Any, kind: type | tuple[type, ...], what: str, advice: str, *, least: int = 1
) -> tuple[Any, ...]:
    """A single value of a kind, or all of them that something holds, as a tuple.

    what: the name of one of them. Raises InputError that names the first wrong one, or says that there are
    fewer than least, and ends with the advice.
    """
    if isinstance(plain := _plain(given), kind):
        return (plain,)
    found = tuple(given) if isinstance(given, Set) else sequence(given)
    items = None if found is None else tuple(map(_plain, found))
    if items is None:
        raise InputError(f"{what}s were given as {describe(given)}; {advice}")
    for place, item in enumerate(items):
        if not isinstance(item, kind):
            raise InputError(f"{what} {place + 1} is {describe(item)}; {advice}")
    if len(items) < least:
        raise InputError(f"no {what}s were given; {advice}")
    return items


def as_str(given: Any, what: str) -> str:
    """A text; None is the empty one. Raises InputError for anything else."""
    if given is None or isinstance(given, str):
        return given or ""
    raise InputError(f"the {what} is {describe(given)}; give text")


def as_int(given: Any, what: str, *, least: int | None = None, unit: str = "") -> int:
    """An int, also one of numpy's or a tensor's. Raises InputError for anything else, and below least."""
    number = _as_int(given)
    if number is None or (least is not None and number < least):
        shown = describe(given) if number is None else number
        wanted = ["a whole number"] * (number is None) + [f"{least} or more"] * (least is not None)
        raise InputError(f"the {what} is {shown}; give {', '.join(wanted)}{unit}")
    return number


def as_ints(given: Any, what: str, expected: str) -> tuple[int, ...]:
    """The ints of any sequence of whole numbers. Raises InputError that names the first item that is none."""
    if type(given) is tuple and all(type(number) is int for number in given):
        return given
    items = sequence(given)
    if items is None:
        raise InputError(f"{what} is {describe(given)}; expected {expected}")
    numbers = []
    for place, item in enumerate(items):
        number = _as_int(item)
        if number is None:
            raise InputError(f"{what} holds {describe(item)} at place {place}; expected {expected}")
        numbers.append(number)
    return tuple(numbers)


def _plain(value: Any) -> Any:
    """Return arrays and columns as lists, and tables as lists of one dictionary per row.

    Iterating over a table of pandas or pyarrow gives its columns, not its rows. Missing values become None.
    """
    if hasattr(value, "tolist"):  # numpy, torch, and columns of pandas
        return value.tolist()
    if hasattr(value, "to_pylist"):  # pyarrow
        return value.to_pylist()
    if hasattr(value, "columns") and hasattr(value, "to_dict"):  # pandas
        return value.astype(object).where(value.notna(), None).to_dict("records")
    return value


def _as_int(given: Any) -> int | None:
    plain = _plain(given)
    return plain if isinstance(plain, int) and not isinstance(plain, bool) else None


class Registry(dict[str, Row]):
    """Rows by name; asking for a name that is not there raises UnknownNameError with those that are.

    kind: what a row is.
    """

    def __init__(self, kind: str, rows: Iterable[Row]) -> None:
        super().__init__((row.name, row) for row in rows)
        self.kind = kind

    def __missing__(self, name: Any) -> Row:
        raise UnknownNameError(f"unknown {self.kind} {name!r}; choose from: {', '.join(self)}")
