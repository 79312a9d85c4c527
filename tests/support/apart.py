"""Functions for a process of its own: those that end well, and those that have to be ended."""

import os
import signal
import sys
import time
from importlib import import_module
from pathlib import Path

from pine_engine.errors import InputError


def double(number: int) -> int:
    """Twice the number."""
    return 2 * number


def refuse(sentence: str) -> None:
    """Raises InputError."""
    raise InputError(sentence)


def fail(words: str) -> None:
    """Raises an error that is none of its reader's."""
    raise KeyError(words)


def spin() -> None:
    """Computes for ever."""
    while True:
        pass


def hold(megabytes: int) -> int:
    """Takes so much memory."""
    return len(bytearray(megabytes * 1_000_000))


def write_much(characters: int) -> str:
    """A text of so many characters."""
    return "x" * characters


def sleep_as(file: Path) -> None:
    """Writes the number of its process into the file and sleeps."""
    file.with_suffix(".part").write_text(str(os.getpid()))
    file.with_suffix(".part").rename(file)
    time.sleep(600)


def crash(number: int) -> None:
    """Ends its process by a signal."""
    os.kill(os.getpid(), signal.Signals(number))


def imported_for(module: str, others: tuple[str, ...]) -> list[str]:
    """Which of the others are imported with a module."""
    import_module(module)
    return [name for name in others if name in sys.modules]
