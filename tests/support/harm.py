"""Monitor of this process: tracebacks in its log, and access to other files, processes and hosts."""

import io
import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.junk import FORBIDDEN_FILE
from viz.page.files.limited_process import SERVE

CHANGES = {"os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.symlink", "os.link", "os.truncate"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
OWN_FOLDERS = {".hypothesis", "__pycache__"}  # written by the tests themselves
ADDRESSES = ("127.0.0.1", "::1")

_watching: list[list[str]] = []  # accesses of each block that runs; an audit hook cannot be removed


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _watching and (access := _forbidden(event, arguments)):
        _watching[-1].append(access)


def _forbidden(event: str, arguments: tuple[Any, ...]) -> str:
    """Return an access in words if it is forbidden, else ""."""
    if event == "open" and isinstance(arguments[0], str | bytes):
        path = Path(os.path.realpath(os.fsdecode(arguments[0])))
        if path == Path(FORBIDDEN_FILE) or (arguments[2] & WRITING and _is_outside(path)):
            return f"open {path}"
    elif event in CHANGES and not (isinstance(arguments[-1], int) and arguments[-1] >= 0):  # in a folder
        if _is_outside(Path(os.path.realpath(os.fsdecode(arguments[0])))):
            return f"{event} {arguments[0]!r}"
    elif event in ("os.system", "os.exec", "os.posix_spawn", "subprocess.Popen"):
        if event != "subprocess.Popen" or SERVE not in arguments[1]:  # files are parsed in a process
            return f"{event} {arguments[0]!r}"
    elif event == "socket.connect" and isinstance(arguments[1], tuple) and arguments[1][0] not in ADDRESSES:
        return f"connect {arguments[1]!r}"
    return ""


def _is_outside(path: Path) -> bool:
    folder = os.path.realpath(tempfile.gettempdir())
    return not (path.is_relative_to(folder) or path == Path("/dev/null") or OWN_FOLDERS & set(path.parts))


@cache
def _install() -> None:
    sys.addaudithook(_audit)


@contextmanager
def no_harm() -> Iterator[io.StringIO]:
    """Yield stderr and the log of the block; fail if they have a traceback, or after a forbidden access.

    Forbidden are changes outside the temporary folder, reading FORBIDDEN_FILE, processes and other hosts.
    """
    _install()
    handler = logging.StreamHandler(stream := io.StringIO())
    loggers = [logging.getLogger(name) for name in ("", "uvicorn.error")]
    for logger in loggers:
        logger.addHandler(handler)
    accesses: list[str] = []
    _watching.append(accesses)
    try:
        with redirect_stderr(stream):
            yield stream
    finally:
        _watching.remove(accesses)
        for logger in loggers:
            logger.removeHandler(handler)
    assert "Traceback" not in stream.getvalue(), stream.getvalue()[-2000:]
    assert not accesses, accesses
