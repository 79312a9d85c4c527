"""Escaped stdout and stderr, so that client text cannot forge log lines."""

import re
import sys
from typing import Any, TextIO, cast

CONTINUATION = "| "  # prefix of each line except the first of one write


def escaped(text: str) -> str:
    """Escape unprintable characters except newlines and tabs; continuation lines get CONTINUATION."""
    body = text.lstrip("\n")
    shown = "".join(
        character if character.isprintable() or character in "\n\t" else ascii(character)[1:-1]
        for character in body
    )
    return text[: len(text) - len(body)] + re.sub(r"\n(?=[^\n])", f"\n{CONTINUATION}", shown)


class EscapedOutput:
    """Text stream that escapes all text: logs, prints and tracebacks of all packages."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write the escaped text."""
        self._stream.write(escaped(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def escape_output() -> None:
    """Replace `sys.stdout` and `sys.stderr`; log handlers created later use them."""
    sys.stdout, sys.stderr = (cast(TextIO, EscapedOutput(stream)) for stream in (sys.stdout, sys.stderr))
