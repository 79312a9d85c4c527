"""Many documents in one pasted text."""

import re

from pine_engine.errors import InputError
from pine_engine.prompts.prompt import Document

MOST_PASTED = 500_000
"""Characters of a text that is taken apart into documents: as many as can be read of all together."""

# A rule on a line of its own, or at least one blank line, stands between pasted documents.
_RULE = re.compile(r"^[ \t]*-{3,}[ \t]*$", re.MULTILINE)
_BLANK_LINES = re.compile(r"\n[ \t]*\n\s*")


def split_pasted(text: str) -> list[Document]:
    """The documents in a pasted text.

    They are separated by lines of --- if there are any, by blank lines otherwise. A first line that starts
    with # is the title. Raises InputError if there are none, or if the text is too long to be taken apart.
    """
    if len(text) > MOST_PASTED:
        raise InputError(
            f"the text has {len(text):,} characters, and {MOST_PASTED:,} can be taken apart here; paste a "
            "part of it"
        )
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
        raise InputError("there is nothing to add; paste some text first")
    return documents


def pasted_sentence(count: int, room: int, most: int) -> str:
    """What became of so many pasted documents where there was room for some. most: that the page holds."""
    added = min(count, room)
    sentence = f"Added {added} document{'s' if added != 1 else ''}."
    if count > room:
        sentence += f" {count - room} did not fit: the page holds {most}."
    return sentence
