"""Documents of a form and their JSON; a letter stays with its document when it is moved."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError

from pine_engine.errors import InputError
from pine_engine.prompts.tasks import Nouns
from viz.page.common.bounds import MAX_DOCUMENTS
from viz.page.common.failures import first_problem

DOCUMENTS = Nouns()  # default labels of documents


def capital(text: str) -> str:
    """Capitalize the first letter."""
    return text[:1].upper() + text[1:]


@dataclass(frozen=True)
class Entry:
    """One document in the editor."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    letter: int  # 0 is A; it stays with the document when that is moved
    title: str = ""
    text: str = ""


Entries = tuple[Entry, ...]


def _each_letter_once(entries: Entries) -> Entries:
    if sorted(entry.letter for entry in entries) != list(range(len(entries))):
        raise InputError(f"Invalid document ids: expected 0 to {len(entries) - 1}.")
    return entries


SentEntries = Annotated[Entries, Field(max_length=MAX_DOCUMENTS), AfterValidator(_each_letter_once)]
"""Entries from outside, which are checked."""

_JSON = TypeAdapter(SentEntries)


def entries_from(documents: Sequence[tuple[str, str]]) -> Entries:
    """Return entries of (title, text) pairs, lettered in this order."""
    return tuple(Entry(letter, title, text) for letter, (title, text) in enumerate(documents))


def entries_json(entries: Entries) -> str:
    """Return the entries as ASCII JSON for assets/documents.js."""
    return json.dumps([asdict(entry) for entry in entries])


def read_entries(sent: str) -> Entries:
    """Parse the entries of assets/documents.js. Raises InputError if they are invalid."""
    try:
        return _JSON.validate_json(sent, strict=True)
    except ValidationError as error:
        raise InputError(f"Invalid documents: {first_problem(error)}.") from error


def room_beside(entries: Entries, most: int) -> int:
    """Return the number of documents that can be added; new ones replace empty ones."""
    filled = sum(bool(entry.title.strip() or entry.text.strip()) for entry in entries)
    return max(0, most - filled)
