"""The documents of a form: texts with a letter that travels with them when they are moved, and their JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from pine_engine.errors import InputError
from pine_engine.prompts.tasks import Nouns
from viz.page.common.bounds import MAX_DOCUMENTS
from viz.page.common.failures import first_problem

DOCUMENTS = Nouns()
"""What documents are called where nothing else is said."""


@dataclass(frozen=True)
class Entry:
    """One document in the editor."""

    identity: int
    """Its letter (0 is A), which it keeps when it is moved."""

    title: str = ""
    text: str = ""


Entries = tuple[Entry, ...]

_JSON = TypeAdapter(Annotated[Entries, Field(max_length=MAX_DOCUMENTS)])


def entries_from(documents: Sequence[tuple[str, str]]) -> Entries:
    """Entries for (title, text) pairs, lettered in this order."""
    return tuple(Entry(identity, title, text) for identity, (title, text) in enumerate(documents))


def entries_json(entries: Entries) -> str:
    """The entries as assets/documents.js takes them; in ASCII, as half a character is no UTF-8."""
    return json.dumps([asdict(entry) for entry in entries])


def read_entries(sent: str) -> Entries:
    """The entries that assets/documents.js has written. Raises InputError for anything else."""
    try:
        entries = _JSON.validate_json(sent, strict=True)
    except ValidationError as error:
        raise InputError(f"the documents cannot be read: {first_problem(error)}") from error
    if sorted(entry.identity for entry in entries) != list(range(len(entries))):
        raise InputError(f"the letters of {len(entries)} documents are not 0 to {len(entries) - 1}")
    return entries


def room_beside(entries: Entries, most: int) -> int:
    """How many documents still fit: new ones take the place of empty ones. most: that the host allows."""
    filled = sum(bool(entry.title.strip() or entry.text.strip()) for entry in entries)
    return max(0, most - filled)
