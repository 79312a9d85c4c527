"""Documents of a form, their JSON, and pasted texts; a letter stays with its document when it is moved."""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter

from pine_engine.errors import InputError
from pine_engine.prompts.prompt import Document
from pine_engine.prompts.tasks import TASKS, Nouns
from pine_engine.prompts.untrusted_json import TupleInput
from viz.page.common.failures import MAX_DOCUMENTS, check_limit
from viz.page.common.untrusted_json import read_json

DOCUMENTS = Nouns()  # default labels of documents
KNOWN_TASK = AfterValidator(lambda name: TASKS[name].name)  # of the name of a task

MAX_PASTED_CHARACTERS = 500_000  # maximum characters of a pasted text
MAX_JSON_CHARACTERS = 1_000_000  # maximum characters of all documents as JSON
# Pasted documents are separated by a line with a rule, or by at least one blank line.
_RULE = re.compile(r"^[ \t]*-{3,}[ \t]*(?:\n|$)", re.MULTILINE)
_BLANK_LINES = re.compile(r"\n[ \t]*\n\s*")


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


SentEntries = Annotated[TupleInput[Entry], Field(max_length=MAX_DOCUMENTS), AfterValidator(_each_letter_once)]
"""Entries from outside, which are checked."""

_JSON = TypeAdapter(SentEntries)


def entries_from(documents: Sequence[tuple[str, str]]) -> Entries:
    """Return entries of (title, text) pairs, lettered in this order."""
    return tuple(Entry(letter, title, text) for letter, (title, text) in enumerate(documents))


def entries_json(entries: Entries) -> str:
    """Return the entries as JSON for assets/documents.js."""
    return json.dumps([asdict(entry) for entry in entries], ensure_ascii=False)


def read_entries(sent: str) -> Entries:
    """Parse the entries of assets/documents.js. Raises InputError if they are invalid."""
    return read_json(_JSON, sent, "Invalid documents", max_size=MAX_JSON_CHARACTERS, is_strict=True)


def room_beside(entries: Entries) -> int:
    """Return the number of documents that can be added; new ones replace empty ones."""
    filled = sum(bool(entry.title.strip() or entry.text.strip()) for entry in entries)
    return max(0, MAX_DOCUMENTS - filled)


# Pasted texts


def split_pasted(text: str) -> list[Document]:
    """Split a pasted text into documents at lines of ---, or at blank lines if there are none.

    A first line that starts with # is the title. Raises InputError if the text is empty or too long.
    """
    advice = "Paste a smaller part."
    check_limit("Pasted text too long", len(text), MAX_PASTED_CHARACTERS, advice, unit=" characters")
    text = text.replace("\r\n", "\n")
    separator = _RULE if _RULE.search(text) else _BLANK_LINES
    documents = []
    for part in filter(None, (part.strip() for part in separator.split(text))):
        first, _, rest = part.partition("\n")
        if first.startswith("#") and rest.strip():
            documents.append(Document(rest.strip(), first.lstrip("# ").strip()))
        else:
            documents.append(Document(part))
    if not documents:
        raise InputError("No text to add. Paste text first.")
    return documents


def pasted_sentence(count: int, room: int) -> str:
    """Describe the number of documents added, and of those that did not fit."""
    added = min(count, room)
    sentence = f"Added {added} document{'s' if added != 1 else ''}."
    if count > room:
        sentence += f" {count - room} not added: at most {MAX_DOCUMENTS} documents are allowed."
    return sentence
