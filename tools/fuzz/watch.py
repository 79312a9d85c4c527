"""Which files a process touches that it has no business with, and what it writes into its log."""

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
"""What may be read besides the folder for temporary files: the program and what it comes with."""

_TOUCHING = {"os.listdir", "os.scandir", "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.symlink",
             "os.link", "os.truncate", "os.chmod"}  # fmt: skip


class Watch:
    """Hears of every file, process and connection of this process while it is armed.

    folder: for temporary files; the only one in which anything may be written. models: folders of models,
    which may be read.
    """

    def __init__(self, folder: Path, models: Sequence[Path]) -> None:
        self.touched: set[str] = set()
        self._folder = os.path.realpath(folder)
        self._readable = (self._folder, *READABLE, *map(os.path.realpath, models))
        self._armed = False
        self._hearing = threading.local()
        sys.addaudithook(self._hear)

    @contextmanager
    def armed(self) -> Iterator[None]:
        """Everything that is touched within the block is judged."""
        self._armed = True
        try:
            yield
        finally:
            self._armed = False

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._armed or getattr(self._hearing, "now", False):
            return
        self._hearing.now = True
        try:
            self._judge(event, arguments)
        finally:
            self._hearing.now = False

    def _judge(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            written = bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND))
            self._judge_path(path, "write" if written else "read", event)
        elif event in ("os.remove", "os.rmdir", "os.mkdir") and arguments[-1] >= 0:  # within an open folder
            self._judge_path(
                Path(os.readlink(f"/proc/self/fd/{arguments[-1]}"), arguments[0]), "write", event
            )
        elif event in _TOUCHING:
            read = event in ("os.listdir", "os.scandir")
            self._judge_path(
                arguments[0] if arguments[0] is not None else ".", "read" if read else "write", event
            )
        elif event in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn"):
            # The page reads files in a process of its own.
            if event != "subprocess.Popen" or SERVE not in arguments[1]:
                self.touched.add(f"{event} {arguments[0]!r}")
        elif event == "socket.connect":
            address = arguments[1]
            if isinstance(address, tuple) and address[0] not in ("127.0.0.1", "::1"):
                self.touched.add(f"connect {address!r}")

    def _judge_path(self, path: Any, how: str, event: str) -> None:
        if isinstance(path, int) or path == "<unknown>":  # what Python calls code that is in no file
            return
        real = os.path.realpath(os.fsdecode(path))
        allowed = (self._folder, "/dev/null") if how == "write" else self._readable
        if not any(real == root or real.startswith(root.rstrip("/") + "/") for root in allowed):
            self.touched.add(f"{how} {real} ({event})")


class Log(logging.Handler):
    """Counts the tracebacks that are logged or printed on stderr, where they still go."""

    def __init__(self) -> None:
        super().__init__()
        self.tracebacks: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """A record with a traceback is one."""
        if record.exc_info and record.levelno >= logging.INFO:
            self.tracebacks.append(self.format(record)[-2000:])

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Hears the root logger, uvicorn's, and stderr."""
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
