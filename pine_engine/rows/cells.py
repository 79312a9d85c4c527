"""Lists and objects in cells of tables: JSON, or as Python, numpy and pandas print them."""

import ast
import io
import json
import re
import tokenize
from contextlib import suppress
from typing import Any

MAX_CHARACTERS = 1_000_000
"""Characters of a list. A longer one is rejected, because parsing takes memory in proportion."""

_BRACKETS = {"[": "]", "{": "}"}

_LIST = re.compile(r"""\s*(\[\s*(['"\[{]|array\()|\{\s*['"]\w+['"]\s*:)""")
"""Start of an object or of a list of texts, lists or objects. A text such as "[sic]" begins otherwise."""

_FAILURES = (ValueError, TypeError, SyntaxError, RecursionError, MemoryError, tokenize.TokenError)


def parse_cell(cell: str) -> Any:
    """Return the list or object of a cell, another cell as it is.

    A cell such as "[sic]" is a text. Raises ValueError for a list of texts or objects that is too long,
    incomplete, or abridged with "...".
    """
    text = cell.strip()
    if len(text) > MAX_CHARACTERS and _LIST.match(text):
        raise ValueError(f"got a list of {len(text):,} characters, expected at most {MAX_CHARACTERS:,}")
    if len(text) > 1 and _BRACKETS.get(text[0]) == text[-1]:
        for load in (json.loads, lambda printed: ast.literal_eval(_with_commas(printed))):
            with suppress(*_FAILURES):
                if isinstance(found := load(text), list | dict):
                    return found
    if _LIST.match(text):
        raise ValueError(f"got {text[:40]!r}, expected a complete list as JSON or Python prints it")
    return cell


def _with_commas(text: str) -> str:
    """Return the text with the commas that numpy leaves out between the items of an array.

    Python would join two texts without a comma between them.
    """
    found: list[str] = []
    ends_item = False
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.NEWLINE, tokenize.NL, tokenize.ENDMARKER):
            continue
        if token.string == "...":
            raise ValueError("an abridged array")
        is_value = token.type in (tokenize.STRING, tokenize.NUMBER, tokenize.NAME)
        if ends_item and (is_value or token.string in ("[", "{")):
            found.append(",")
        found.append(token.string)
        ends_item = is_value or token.string in ("]", "}")
    return " ".join(found)
