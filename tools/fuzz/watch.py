"""Monitor of the files, processes and connections of this process, and of the tracebacks in its log."""

import logging
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from viz.page.files.limited_process import SERVE

ROOT = Path(__file__).parents[2]

READABLE = (
    *(
        str(ROOT / name)
        for name in ("app.py", "assets", "pine_engine", "pine_explorer.egg-info", "tests", "tools", "viz")
    ),
    sys.prefix,
    sys.base_prefix,
    *(os.path.realpath(folder) for folder in (sys.prefix, sys.base_prefix)),
    "/dev/null",
    "/dev/urandom",
    "/proc/self/stat",
    "/proc/meminfo",
    "/proc/cpuinfo",
    "/sys/fs/cgroup",
    "/etc/localtime",
    "/usr/share/zoneinfo",
)
"""Readable paths outside the folder of temporary files: the program and its requirements."""

_PATH_EVENTS = {"os.listdir", "os.scandir", "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.symlink",
             "os.link", "os.truncate", "os.chmod"}  # fmt: skip


class AccessMonitor:
    """Record of forbidden accesses of this process, from its audit events.

    Args:
        folder: Folder of temporary files, the only writable one.
        models: Readable folders of models.
    """

    def __init__(self, folder: Path, models: Sequence[Path]) -> None:
        self.violations: set[str] = set()
        self._folder = os.path.realpath(folder)
        self._readable = (self._folder, *READABLE, *map(os.path.realpath, models))
        self._is_active = False
        self._thread = threading.local()
        sys.addaudithook(self._audit)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Check all accesses inside the block."""
        self._is_active = True
        try:
            yield
        finally:
            self._is_active = False

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._is_active or getattr(self._thread, "is_checking", False):
            return
        self._thread.is_checking = True
        try:
            self._check(event, arguments)
        finally:
            self._thread.is_checking = False

    def _check(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            written = bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND))
            self._check_path(path, "write" if written else "read", event)
        elif event in ("os.remove", "os.rmdir", "os.mkdir") and arguments[-1] >= 0:  # within an open folder
            self._check_path(
                Path(os.readlink(f"/proc/self/fd/{arguments[-1]}"), arguments[0]), "write", event
            )
        elif event in _PATH_EVENTS:
            read = event in ("os.listdir", "os.scandir")
            self._check_path(
                arguments[0] if arguments[0] is not None else ".", "read" if read else "write", event
            )
        elif event in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn"):
            # The page parses uploaded files in another process.
            if event != "subprocess.Popen" or SERVE not in arguments[1]:
                self.violations.add(f"{event} {arguments[0]!r}")
        elif event == "socket.connect":
            address = arguments[1]
            if isinstance(address, tuple) and address[0] not in ("127.0.0.1", "::1"):
                self.violations.add(f"connect {address!r}")

    def _check_path(self, path: Any, mode: str, event: str) -> None:
        if isinstance(path, int) or path == "<unknown>":  # the path of code without a file
            return
        real = os.path.realpath(os.fsdecode(path))
        allowed = (self._folder, "/dev/null") if mode == "write" else self._readable
        if not any(real == root or real.startswith(root.rstrip("/") + "/") for root in allowed):
            self.violations.add(f"{mode} {real} ({event})")


class TracebackHandler(logging.Handler):
    """Collection of the tracebacks that are logged or printed on stderr."""

    def __init__(self) -> None:
        super().__init__()
        self.tracebacks: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Add the traceback of a record."""
        if record.exc_info and record.levelno >= logging.INFO:
            self.tracebacks.append(self.format(record)[-2000:])

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Collect from the root logger, those of uvicorn, and stderr inside the block."""
        loggers = [logging.getLogger(name) for name in ("", "uvicorn", "uvicorn.error")]
        for logger in loggers:
            logger.addHandler(self)
        stderr, sys.stderr = sys.stderr, _Tee(sys.stderr, self.tracebacks)
        try:
            yield
        finally:
            sys.stderr = stderr
            for logger in loggers:
                logger.removeHandler(self)


class _Tee:
    def __init__(self, stream: Any, tracebacks: list[str]) -> None:
        self._stream, self._tracebacks = stream, tracebacks

    def write(self, text: str) -> int:
        if "Traceback (most recent call last)" in text:
            self._tracebacks.append(text)
        return int(self._stream.write(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
