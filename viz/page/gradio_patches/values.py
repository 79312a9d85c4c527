"""Values of requests that no page sends."""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pine_engine.errors import InputError
from viz.page.common.limits import MAX_VALUES, TOO_MANY_VALUES

_SURROGATE = re.compile("[\ud800-\udfff]")

FILE_OBJECT = (
    "Invalid value: got a file object (with path and meta or url). Only upload buttons accept files; send "
    "the text of the file instead."
)


def refuse_file_types(value: Any, types: Sequence[str] | None) -> None:
    """Raise InputError for a file whose name has another ending than those of the button."""
    for file in value if isinstance(value, list) else [value]:
        match file:
            case {"path": str(path)} if types and not path.lower().endswith(tuple(types)):
                expected = f"got {Path(path).name!r}, expected {', '.join(types)}"
                raise InputError(f"Invalid file type: {expected}. Upload another file.")


def refuse_values(value: Any, *, allows_files: bool = False) -> int:
    """Raise InputError for a value, at any depth, that no page sends.

    These are too many values, NaN, infinity, invalid Unicode, a file to fetch from elsewhere, and a file
    object, unless files are allowed: gradio reads or fetches its path, and its MCP server even any file of
    the host. Returns the number of values.
    """
    values, num_values = [value], 0
    while values:
        num_values += 1
        if num_values + len(values) > MAX_VALUES:
            raise InputError(TOO_MANY_VALUES)
        match values.pop():
            case str(text) if not text.isascii() and _SURROGATE.search(text):
                raise InputError("Invalid text: unpaired Unicode surrogate. Remove it.")
            case float(number) if not math.isfinite(number):
                raise InputError(f"Invalid number: got {number}, expected a finite value.")
            case {"path": str(path)} if path.strip().lower().startswith(("http:", "https:")):
                raise InputError("URLs are not supported as files. Upload the file.")
            case {"path": str(path)} if "\0" in path:
                raise InputError("Invalid path: contains a NUL byte. Upload the file.")
            case {"path": str(), "meta": _} | {"path": str(), "url": _} | {"_type": "gradio.FileData"} if (
                not allows_files
            ):
                raise InputError(FILE_OBJECT)
            case dict(inner):
                values.extend((*inner, *inner.values()))
            case list(inner):
                values.extend(inner)
    return num_values
