"""Documents of a form, and their JSON; a letter stays with its document when it is moved."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter

from pine_engine.errors import InputError
from pine_engine.prompts.tasks import TASKS, Nouns
from pine_engine.rows.untrusted_json import TupleInput
from viz.page.common.limits import MAX_DOCUMENTS
from viz.page.common.untrusted_json import read_json

DOCUMENTS = Nouns()  # default labels of documents
KNOWN_TASK = AfterValidator(lambda name: TASKS[name].name)  # of the name of a task

MAX_JSON_CHARACTERS = 1_000_000  # maximum characters of all documents as JSON


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
    score: Annotated[float | None, Field(allow_inf_nan=False, exclude_if=lambda score: score is None)] = None


Entries = tuple[Entry, ...]


def _each_letter_once(entries: Entries) -> Entries:
    if sorted(entry.letter for entry in entries) != list(range(len(entries))):
        raise InputError(f"Invalid document ids: expected 0 to {len(entries) - 1}.")
    return entries


SentEntries = Annotated[TupleInput[Entry], Field(max_length=MAX_DOCUMENTS), AfterValidator(_each_letter_once)]
"""Entries from outside, which are checked."""

_JSON = TypeAdapter(SentEntries)


def entries_from(documents: Sequence[tuple[str, str] | tuple[str, str, float | None]]) -> Entries:
    """Return entries of title, text and optionally score, lettered in this order."""
    return tuple(Entry(letter, *document) for letter, document in enumerate(documents))


def entries_json(entries: Entries) -> str:
    """Return the entries as JSON for assets/documents.js."""
    fields = [
        {name: value for name, value in asdict(entry).items() if value is not None} for entry in entries
    ]
    return json.dumps(fields, ensure_ascii=False)


def read_entries(sent: str) -> Entries:
    """Parse the entries of assets/documents.js. Raises InputError if they are invalid."""
    return read_json(_JSON, sent, "Invalid documents", max_size=MAX_JSON_CHARACTERS, is_strict=True)


def room_beside(entries: Entries) -> int:
    """Return the number of documents that can be added; new ones replace empty ones."""
    filled = sum(bool(entry.title.strip() or entry.text.strip()) for entry in entries)
    return max(0, MAX_DOCUMENTS - filled)
