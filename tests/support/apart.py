"""Functions for another process: they return, raise an error, exceed a limit, or end by a signal."""

import os
import signal
import sys
import time
from importlib import import_module
from pathlib import Path

from pine_engine import InputError


def double(number: int) -> int:
    return 2 * number


def refuse(sentence: str) -> None:
    raise InputError(sentence)


def fail(words: str) -> None:
    raise KeyError(words)


def spin() -> None:
    while True:
        pass


def hold(megabytes: int) -> int:
    return len(bytearray(megabytes * 1_000_000))


def write_much(characters: int) -> str:
    return "x" * characters


def sleep_as(file: Path) -> None:
    file.with_suffix(".part").write_text(str(os.getpid()))
    file.with_suffix(".part").rename(file)
    time.sleep(600)


def crash(number: int) -> None:
    os.kill(os.getpid(), signal.Signals(number))


def imported_for(module: str, others: tuple[str, ...]) -> list[str]:
    import_module(module)
    return [name for name in others if name in sys.modules]
