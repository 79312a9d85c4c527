"""The files of visitors on the host's disk: how long each is kept, and how much they may take together.

What was uploaded goes once it was read, and after an hour if nobody reads it; what is left of an upload that
broke off goes at once; what visitors are handed goes with their session.
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
"""For which a file is kept that no session holds."""

USED_S = 60.0
"""For which it is kept however little room there is: what was uploaded is read in a moment."""

SWEEP_S = 60.0
"""How often is looked for what can go."""

CLOCK_S = 1.0
"""By which the clock of a file system may be behind."""

LOOKED_S = 1.0
"""For which it is known what there is; ten times as long as looking took if that is more."""

BLOCK = 4096
"""Bytes that a file or a folder takes at least."""

SESSIONS = "sessions"
"""The folder of what visitors are handed, with a folder for each thing."""

FULL = (
    "The disk of this page's host is full: nothing can be uploaded or saved now. What you typed is kept; try "
    "again later, or paste the text."
)

TOO_MUCH = (
    "The files of all visitors may take {most:,g} MB of the host's disk: nothing can be uploaded or saved "
    "now. What you typed is kept; try again in some minutes, or paste the text."
)


class DiskFullError(PineError):
    """There is no room for a visitor's file."""


def is_disk_full(error: BaseException) -> bool:
    """Whether the system says that the disk has no room, or none for this user."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


@dataclass(eq=False)
class Upload:
    """One that goes on."""

    began: float
    """In seconds since the epoch."""

    coming: int
    """Bytes that it may still bring."""


@dataclass(frozen=True)
class Thing:
    """A file or a folder."""

    path: Path
    num_bytes: int
    changed: float
    """In seconds since the epoch; of a folder, when it was written into."""


class Disk:
    """The folder out of which gradio hands files, and into which it puts uploads.

    most_bytes: that it may hold. held: the folders that sessions hold.
    """

    def __init__(
        self, folder: Path, most_bytes: float, *, held: Callable[[], Iterable[Path]] = lambda: ()
    ) -> None:
        self._folder, self._most_bytes, self._held = folder, most_bytes, held
        self._lock = threading.Lock()  # held for moments; the other while the disk is looked through
        self._looking = threading.Lock()
        self._uploads: set[Upload] = set()
        self._unread: Counter[str] = Counter()  # paths, with how often each was uploaded
        self._things: list[Thing] = []
        self._known_until = 0.0
        self._come = 0  # bytes of uploads since then

    @contextmanager
    def upload(self, most_bytes: int) -> Iterator[Upload]:
        """Counts an upload while it goes on; when it ends, what it has left is removed."""
        upload = Upload(time.time(), most_bytes)
        with self._lock:
            self._uploads.add(upload)
        try:
            yield upload
        finally:
            with self._lock:
                self._uploads.discard(upload)
                self._come += most_bytes - upload.coming
            self._remove_parts()

    def arrived(self, paths: Iterable[str]) -> None:
        """These were uploaded, and wait to be read."""
        with self._lock:
            self._unread.update(paths)

    def was_read(self, paths: Iterable[str]) -> None:
        """Removes those that were uploaded, unless others have uploaded the same and wait."""
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
        """A new folder for one visitor, whose name, of 128 random bits, nobody can guess.

        Raises DiskFullError as make_room does.
        """
        self.make_room()
        folder = self._folder / SESSIONS / secrets.token_hex(16)
        folder.mkdir(parents=True)
        return folder

    def make_room(self) -> None:
        """Returns once there is room for all uploads that go on; for it what is unused goes, oldest first.

        Raises DiskFullError if there is not.
        """
        with self._lock:
            coming = sum(upload.coming for upload in self._uploads)
        with self._looking:
            excess = sum(thing.num_bytes for thing in self._look()) + self._come + coming - self._most_bytes
            unused = sorted(self._unused(USED_S), key=lambda thing: thing.changed) if excess > 0 else []
            for thing in unused:
                if excess <= 0:
                    break
                _remove(thing.path)
                self._things.remove(thing)
                excess -= thing.num_bytes
        if excess > 0:
            raise DiskFullError(TOO_MUCH.format(most=self._most_bytes / 1e6))
        if shutil.disk_usage(self._folder).free <= coming:
            raise DiskFullError(FULL)

    def sweep(self) -> None:
        """Removes what is too old."""
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
        """Does so as long as the process lives, in a thread of its own."""

        def sweep() -> None:
            while True:
                time.sleep(SWEEP_S)
                self.sweep()

        threading.Thread(target=sweep, name="sweep", daemon=True).start()

    def _look(self) -> list[Thing]:
        """What there is, as it was found a moment ago."""
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
        """What was found, has not been written for so long, and no session holds; parts are not among it."""
        before, held = time.time() - seconds, set(self._held())
        return [
            thing
            for thing in self._things
            if thing.changed < before and thing.path not in held and not thing.path.is_file()
        ]

    def _remove_parts(self) -> None:
        """Removes the parts of files that no upload that goes on can have begun to write.

        gradio puts them beside the folders of finished uploads, and leaves them where an upload breaks off.
        """
        with self._lock:
            began = min((upload.began for upload in self._uploads), default=float("inf"))
        with suppress(FileNotFoundError), os.scandir(self._folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    if entry.is_file() and entry.stat().st_mtime < began - CLOCK_S:
                        os.remove(entry)


def _thing(path: Path) -> Thing | None:
    """What is at a path; None if it has gone."""
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
    """Removes a file or a folder, which somebody else may have removed."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
