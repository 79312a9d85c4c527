"""Functions for another process: they return, raise an error, exceed a limit, or end by a signal."""

import os
import signal
import sys
import time
from importlib import import_module
from pathlib import Path

from pine_engine import InputError


def double(number: int) -> int:
    """Return twice the number."""
    return 2 * number


def refuse(sentence: str) -> None:
    """Raise InputError."""
    raise InputError(sentence)


def fail(words: str) -> None:
    """Raise an unexpected error."""
    raise KeyError(words)


def spin() -> None:
    """Compute without end."""
    while True:
        pass


def hold(megabytes: int) -> int:
    """Allocate memory."""
    return len(bytearray(megabytes * 1_000_000))


def write_much(characters: int) -> str:
    """Return a text of this length."""
    return "x" * characters


def sleep_as(file: Path) -> None:
    """Write the process id into the file, then sleep."""
    file.with_suffix(".part").write_text(str(os.getpid()))
    file.with_suffix(".part").rename(file)
    time.sleep(600)


def crash(number: int) -> None:
    """End this process by a signal."""
    os.kill(os.getpid(), signal.Signals(number))


def imported_for(module: str, others: tuple[str, ...]) -> list[str]:
    """Return the other modules that are imported with a module."""
    import_module(module)
    return [name for name in others if name in sys.modules]
