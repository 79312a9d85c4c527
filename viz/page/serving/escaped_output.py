"""Standard output and standard error, on which no client writes a line of its own."""

import re
import sys
from typing import Any, TextIO, cast

CONTINUATION = "| "
"""Begins each line but the first of one piece of output, so that no client text begins a line."""


def escaped(text: str) -> str:
    """Return one piece of output with each character escaped that is not printable.

    Newlines and tabs stay, because tracebacks have them; a line after a newline begins with CONTINUATION.
    """
    body = text.lstrip("\n")
    shown = "".join(
        character if character.isprintable() or character in "\n\t" else ascii(character)[1:-1]
        for character in body
    )
    return text[: len(text) - len(body)] + re.sub(r"\n(?=[^\n])", f"\n{CONTINUATION}", shown)


class EscapedOutput:
    """A text stream that escapes all that is written to it.

    Log records, prints and tracebacks of this project, of gradio, uvicorn and mcp all end in such a stream.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write the escaped text."""
        self._stream.write(escaped(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def escape_output() -> None:
    """Replace `sys.stdout` and `sys.stderr`; log handlers that are made later write to the new ones."""
    sys.stdout, sys.stderr = (cast(TextIO, EscapedOutput(stream)) for stream in (sys.stdout, sys.stderr))
