"""Escaped output of the process, so that no text of a client begins a line or controls a terminal."""

import io
import logging
import re
import sys

CONTINUATION = "| "  # prefix of each line except the first of one write


class EscapedStream(io.TextIOWrapper):
    """Text stream that escapes unprintable characters, and marks the later lines of one text."""

    def __init__(self, plain: io.TextIOWrapper) -> None:
        super().__init__(plain.buffer, plain.encoding, plain.errors, line_buffering=plain.line_buffering)
        self._plain = plain  # which would close the buffer at its end

    def write(self, text: str, /) -> int:
        """Write a text, escaped, and return its length."""
        super().write(escaped(text))
        return len(text)


def escaped(text: str) -> str:
    """Escape unprintable characters except newlines and tabs; continuation lines get CONTINUATION."""
    body = text.lstrip("\n")
    shown = "".join(
        character if character.isprintable() or character in "\n\t" else ascii(character)[1:-1]
        for character in body
    )
    return text[: len(text) - len(body)] + re.sub(r"\n(?=[^\n])", f"\n{CONTINUATION}", shown)


def escape_output() -> None:
    """Escape all text that stdout and stderr receive from now on: logs, prints and tracebacks."""
    loggers = (logging.root, *logging.root.manager.loggerDict.values())
    handlers = [handler for logger in loggers for handler in getattr(logger, "handlers", ())]
    for name in ("stdout", "stderr"):
        plain = getattr(sys, name)
        plain.flush()
        stream = EscapedStream(plain)
        setattr(sys, name, stream)
        for handler in handlers:  # of packages that are loaded
            if isinstance(handler, logging.StreamHandler) and handler.stream is plain:
                handler.setStream(stream)
