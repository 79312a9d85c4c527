"""Documents from a pasted text."""

import re

from pine_engine.errors import InputError
from pine_engine.rows.documents import Document
from viz.page.common.limits import MAX_DOCUMENTS, check_limit

MAX_PASTED_CHARACTERS = 500_000  # maximum characters of a pasted text
# Pasted documents are separated by a line with a rule, or by at least one blank line.
_RULE = re.compile(r"^[ \t]*-{3,}[ \t]*(?:\n|$)", re.MULTILINE)
_BLANK_LINES = re.compile(r"\n[ \t]*\n\s*")


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
