"""Disk quota and lifetime of uploads and downloads.

An upload is removed once parsed, and after an hour at the latest; the rest of an aborted upload at once;
downloads are removed with their session.
"""

import errno
import os
import secrets
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pine_engine.errors import PineError

AGE_S = 3600.0
"""Seconds for which a file without a session is kept."""

USED_S = 60.0
"""Seconds for which a file is kept even if space is low, so that an upload can be parsed."""

SWEEP_S = 60.0
"""Seconds between two sweeps."""

CLOCK_S = 1.0
"""Maximum lag of the clock of a file system, in seconds."""

LOOKED_S = 1.0
"""Minimum seconds between two scans; at least ten times the duration of a scan."""

BLOCK = 4096
"""Minimum bytes of a file or a folder."""

SESSIONS = "sessions"
"""Folder of downloads, with a folder for each."""

FULL = (
    "The disk of this page's host is full: nothing can be uploaded or saved now. What you typed is kept; try "
    "again later, or paste the text."
)

TOO_MUCH = (
    "The files of all visitors may take {most:,g} MB of the host's disk: nothing can be uploaded or saved "
    "now. What you typed is kept; try again in some minutes, or paste the text."
)


class DiskFullError(PineError):
    """The disk has no space for a file of a user."""


def is_disk_full(error: BaseException) -> bool:
    """Check whether the error is "no space left" or a quota of the user."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


@dataclass(eq=False)
class Upload:
    """An active upload."""

    began: float
    """Start, in seconds since the epoch."""

    coming: int
    """Bytes that may still arrive."""


@dataclass(frozen=True)
class Thing:
    """A file or a folder."""

    path: Path
    num_bytes: int
    changed: float
    """Modification time in seconds since the epoch."""


class Disk:
    """Quota of the folder of gradio's downloads and uploads; `held` returns the folders of sessions."""

    def __init__(
        self, folder: Path, max_bytes: float, *, held: Callable[[], Iterable[Path]] = lambda: ()
    ) -> None:
        self._folder, self._max_bytes, self._held = folder, max_bytes, held
        self._lock = threading.Lock()  # held for moments; the other while the disk is looked through
        self._looking = threading.Lock()
        self._uploads: set[Upload] = set()
        self._unread: Counter[str] = Counter()  # paths, with how often each was uploaded
        self._things: list[Thing] = []
        self._known_until = 0.0
        self._come = 0  # bytes of uploads since then

    @contextmanager
    def upload(self, max_bytes: int) -> Iterator[Upload]:
        """Count an upload while the block runs; afterwards remove its incomplete files."""
        upload = Upload(time.time(), max_bytes)
        with self._lock:
            self._uploads.add(upload)
        try:
            yield upload
        finally:
            with self._lock:
                self._uploads.discard(upload)
                self._come += max_bytes - upload.coming
            self._remove_parts()

    def arrived(self, paths: Iterable[str]) -> None:
        """Register uploaded files that wait to be parsed."""
        with self._lock:
            self._unread.update(paths)

    def was_read(self, paths: Iterable[str]) -> None:
        """Remove uploaded files that were parsed, unless another upload of the same files waits."""
        for path in map(Path, paths):
            with self._lock:
                if str(path) not in self._unread:
                    continue
                self._unread[str(path)] -= 1
                if not self._unread[str(path)]:
                    del self._unread[str(path)]
                    _remove(path)
                    with suppress(OSError):  # there may be one of the same content and another name
                        path.parent.rmdir()

    def new_folder(self) -> Path:
        """Create a folder with a random name of 128 bits for one user. Raises DiskFullError."""
        self.make_room()
        folder = self._folder / SESSIONS / secrets.token_hex(16)
        folder.mkdir(parents=True)
        return folder

    def make_room(self) -> None:
        """Remove unused files, oldest first, until all active uploads fit.

        Raises DiskFullError if they do not.
        """
        with self._lock:
            coming = sum(upload.coming for upload in self._uploads)
        with self._looking:
            excess = sum(thing.num_bytes for thing in self._look()) + self._come + coming - self._max_bytes
            unused = sorted(self._unused(USED_S), key=lambda thing: thing.changed) if excess > 0 else []
            for thing in unused:
                if excess <= 0:
                    break
                _remove(thing.path)
                self._things.remove(thing)
                excess -= thing.num_bytes
        if excess > 0:
            raise DiskFullError(TOO_MUCH.format(most=self._max_bytes / 1e6))
        if shutil.disk_usage(self._folder).free <= coming:
            raise DiskFullError(FULL)

    def sweep(self) -> None:
        """Remove expired files."""
        self._remove_parts()
        with self._looking:
            self._known_until = 0
            self._look()
            for thing in self._unused(AGE_S):
                _remove(thing.path)
        with self._lock:
            for path in [path for path in self._unread if not os.path.exists(path)]:
                del self._unread[path]

    def sweep_now_and_then(self) -> None:
        """Start a daemon thread that sweeps periodically."""

        def sweep() -> None:
            while True:
                time.sleep(SWEEP_S)
                self.sweep()

        threading.Thread(target=sweep, name="sweep", daemon=True).start()

    def _look(self) -> list[Thing]:
        """Return the entries of the last scan, at most a moment old."""
        began = time.monotonic()
        if began > self._known_until:
            self._come = 0
            self._folder.mkdir(parents=True, exist_ok=True)
            folders = (self._folder, self._folder / SESSIONS)
            self._things = [
                thing
                for folder in folders
                if folder.is_dir()
                for path in folder.iterdir()
                if path.name != SESSIONS and (thing := _thing(path))
            ]
            now = time.monotonic()
            self._known_until = now + max(LOOKED_S, 10 * (now - began))
        return self._things

    def _unused(self, seconds: float) -> list[Thing]:
        """Return entries older than `seconds` that no session holds, without incomplete uploads."""
        before, held = time.time() - seconds, set(self._held())
        return [
            thing
            for thing in self._things
            if thing.changed < before and thing.path not in held and not thing.path.is_file()
        ]

    def _remove_parts(self) -> None:
        """Remove incomplete files of no active upload, which gradio leaves after an aborted upload."""
        with self._lock:
            began = min((upload.began for upload in self._uploads), default=float("inf"))
        with suppress(FileNotFoundError), os.scandir(self._folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    if entry.is_file() and entry.stat().st_mtime < began - CLOCK_S:
                        os.remove(entry)


def _thing(path: Path) -> Thing | None:
    """Return the entry at a path; None if it is gone."""
    with suppress(FileNotFoundError):
        found = path.stat()
        within = path.rglob("*") if path.is_dir() else ()
        num_bytes = sum(_whole_blocks(one) for one in (path, *within))
        return Thing(path, num_bytes, found.st_mtime)
    return None


def _whole_blocks(path: Path) -> int:
    size = path.stat().st_size if path.is_file() else 0
    return max(1, -(-size // BLOCK)) * BLOCK


def _remove(path: Path) -> None:
    """Remove a file or a folder, which may be gone already."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
