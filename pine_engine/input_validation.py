"""Arguments in the one form that the engine works on, and messages for values that have no such form."""

import json
from collections.abc import Iterable, Mapping, Set
from contextlib import suppress
from typing import Any, Literal, TypeVar

from pine_engine.errors import InputError, UnknownNameError

Entry = TypeVar("Entry")

MAX_SHOWN = 40  # characters of a wrong value that a message contains


def describe(value: Any) -> str:
    """Return the type and the beginning of a wrong value, for a message."""
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, str):
        return f"the text {value[:MAX_SHOWN]!r}"
    kind, shown = type(value).__name__, " ".join(repr(value).split())
    start = "" if shown.startswith(kind) else f"{kind} "
    return start + shown[:MAX_SHOWN] + " ..." * (len(shown) > MAX_SHOWN)


def describe_json(value: Any) -> str:
    """Return the beginning of a wrong value of JSON in the notation of JSON, for a message."""
    shown = json.dumps(value, ensure_ascii=False, default=describe)
    shown = shown.encode("utf-8", "backslashreplace").decode()  # halves of surrogate pairs
    return shown[:MAX_SHOWN] + " ..." * (len(shown) > MAX_SHOWN)


def sequence(value: Any) -> tuple[Any, ...] | None:
    """Return the items of an ordered collection, array or tensor, the rows of a table; None for texts."""
    listed = _plain(value)
    if isinstance(listed, str | bytes | Mapping | Set) or not isinstance(listed, Iterable):
        return None
    return tuple(listed)


def as_tuple_of(
    value: Any, kind: type | tuple[type, ...], label: str, advice: str, *, least: int = 1
) -> tuple[Any, ...]:
    """Return a single value of a type, or all values in a collection, as a tuple of `least` or more."""
    if isinstance(plain := _plain(value), kind):
        return (plain,)
    found = tuple(value) if isinstance(value, Set) else sequence(value)
    if found is None:
        raise InputError(f"{label}s were given as {describe(value)}; {advice}", field=label)
    items = tuple(map(_plain, found))
    for place, item in enumerate(items):
        if not isinstance(item, kind):
            raise InputError(f"{label} {place + 1} is {describe(item)}; {advice}", field=label)
    if len(items) < least:
        raise InputError(f"no {label}s were given; {advice}", field=label)
    return items


def as_str(value: Any, label: str) -> str:
    """Return a string, the empty one for None. Raises InputError for other types."""
    if value is None or isinstance(value, str):
        return value or ""
    raise InputError(f"the {label} is {describe(value)}; give text", field=label)


def as_int(value: Any, label: str, *, least: int | None = None, unit: str = "") -> int:
    """Return an int, also from numpy and tensors. Raises InputError for other types and below `least`."""
    number = _as_int(value)
    if number is None or (least is not None and number < least):
        shown = describe(value) if number is None else number
        expected = ["a whole number"] * (number is None) + [f"{least} or more"] * (least is not None)
        raise InputError(f"the {label} is {shown}; give {', '.join(expected)}{unit}", field=label)
    return number


def as_ints(value: Any, label: str, expected: str) -> tuple[int, ...]:
    """Return the ints of any sequence. Raises InputError that names the first item of another type."""
    if type(value) is tuple and all(type(number) is int for number in value):
        return value
    items = sequence(value)
    if items is None:
        raise InputError(f"{label} is {describe(value)}; expected {expected}", field=label)
    numbers = []
    for place, item in enumerate(items):
        number = _as_int(item)
        if number is None:
            message = f"{label} holds {describe(item)} at place {place}; expected {expected}"
            raise InputError(message, field=label)
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


def _as_int(value: Any) -> int | None:
    plain = _plain(value)
    return plain if isinstance(plain, int) and not isinstance(plain, bool) else None


class Registry(dict[str, Entry]):
    """Entries by their `name`, in any case; an unknown name raises UnknownNameError with the known ones.

    `former_names` of an entry, if it has some, are found too, so that older files and links stay valid.
    """

    def __init__(self, kind: str, entries: Iterable[Any]) -> None:
        entries = list(entries)
        super().__init__((entry.name, entry) for entry in entries)
        self.kind = kind
        self._renamed = {old: one.name for one in entries for old in getattr(one, "former_names", ())}

    def __missing__(self, name: Any) -> Entry:
        if isinstance(name, str):
            known = self._renamed.get(name.lower(), name.lower())
            if (entry := self.get(known)) is not None:
                return entry
        raise UnknownNameError(self.kind, name, self)


def check_api_key(key: str, label: str, *, encoding: Literal["ASCII", "Latin-1"] = "ASCII") -> None:
    """Raise InputError, which does not repeat the key, for a key that no HTTP header can contain.

    `label` names the option or variable of the key. The client of the OpenAI API sends ASCII; others also
    send Latin-1.
    """
    with suppress(UnicodeEncodeError):
        if key.encode(encoding) and key.isprintable() and key == key.strip():
            return
    problem = "got a blank at an end, a line break or another character that no HTTP header can contain"
    message = f"invalid {label}: {problem}, expected printable {encoding}. Copy the key again."
    raise InputError(message, field=label)
