"""Escaped stdout and stderr, so that client text cannot forge log lines."""

import re
from collections.abc import Callable
from functools import partial
from typing import TextIO

CONTINUATION = "| "  # prefix of each line except the first of one write


def escaped(text: str) -> str:
    """Escape unprintable characters except newlines and tabs; continuation lines get CONTINUATION."""
    body = text.lstrip("\n")
    shown = "".join(
        character if character.isprintable() or character in "\n\t" else ascii(character)[1:-1]
        for character in body
    )
    return text[: len(text) - len(body)] + re.sub(r"\n(?=[^\n])", f"\n{CONTINUATION}", shown)


def escape_output(*streams: TextIO) -> None:
    """Escape all text that streams receive from now on: logs, prints and tracebacks of all packages."""
    for stream in streams:
        vars(stream)["write"] = partial(_write, stream.write)


def _write(write: Callable[[str], int], text: str) -> int:
    write(escaped(text))
    return len(text)
