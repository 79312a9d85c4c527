"""Documents marked in a text, for programs that send one text: <document>...</document>."""

import re
from typing import NamedTuple

from pine_engine.errors import InputError

MARKED = re.compile(r"<document>(.*?)</document>", re.DOTALL)
MARK = re.compile(r"</?document>")


class MarkedText(NamedTuple):
    """Text before the documents, the documents, and the text after them, all without marks."""

    prefix: str
    documents: list[str]
    suffix: str


def split_documents(text: str) -> MarkedText | None:
    """Return the documents marked in a text, None if there is none.

    White space between two documents belongs to the first of them. Raises InputError for other text between
    documents, and for a mark without its counterpart.
    """
    prefix, *parts = MARKED.split(text)
    if not parts:
        return None
    documents, between = parts[::2], parts[1::2]
    for index, gap in enumerate(between[:-1]):
        if gap.strip():
            message = f"there is text between documents: got {gap.strip()[:40]!r}, expected white space"
            raise InputError(f"{message}; move it into a document, or before or after all", field="documents")
        documents[index] += gap
    for part in (prefix, *documents, between[-1]):
        if mark := MARK.search(part):
            raise InputError(
                f"{mark.group()} has no counterpart; mark <document>...</document>", field="documents"
            )
    return MarkedText(prefix, documents, between[-1])
