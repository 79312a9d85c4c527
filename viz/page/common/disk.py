"""Files of users: one quota for uploads and downloads, and their removal.

An upload is removed once parsed, after an hour at the latest; the rest of an aborted upload at once.
Downloads are removed with their session, after a day at the latest.
"""

import errno
import os
import secrets
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pine_engine.errors import PineError

UPLOAD_AGE_S, DOWNLOAD_AGE_S = 3600.0, 86400.0  # maximum age of files
SWEEP_S = 60.0  # seconds between two sweeps
CLOCK_S = 1.0  # maximum lag of the clock of a file system, in seconds
SCAN_S = 1.0  # minimum seconds between two scans; at least ten times the duration of a scan
BLOCK = 4096  # minimum bytes of a file or a folder
SESSIONS = "sessions"  # folder of downloads, with a folder for each
FULL = (
    "Server disk full: uploads and saving are unavailable. Your input is kept. Try again later, or paste the "
    "text."
)

TOO_MUCH = (
    "Disk quota reached ({most:,g} MB for all users): uploads and saving are unavailable. Your input is "
    "kept. Try again in a few minutes, or paste the text."
)


class DiskFullError(PineError):
    """The disk has no space for a file of a user."""


def is_disk_full(error: BaseException) -> bool:
    """Check whether the error is "no space left" or a quota of the user."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


@dataclass(eq=False)
class Upload:
    """An active upload."""

    began: float  # start, in seconds since the epoch
    coming: int  # bytes that may still arrive


class Disk:
    """Quota of the folder of gradio's downloads and uploads."""

    def __init__(self, folder: Path, max_bytes: float) -> None:
        self._folder, self._max_bytes = folder, max_bytes
        self._lock = threading.Lock()
        self._scanning = threading.Lock()  # apart, because the server does not wait for a scan
        self._uploads: set[Upload] = set()
        self._unread: Counter[str] = Counter()  # paths, with how often each was uploaded
        self._used = 0  # bytes of the last scan and of uploads since then
        self._next_scan_at = 0.0

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
                self._used += max_bytes - upload.coming
            self._remove_parts()

    def check(self) -> None:
        """Raise DiskFullError if the active uploads do not fit."""
        with self._scanning:
            began = time.monotonic()
            if began > self._next_scan_at:
                self._used = _used_bytes(self._folder)
                now = time.monotonic()
                self._next_scan_at = now + max(SCAN_S, 10 * (now - began))
        with self._lock:
            coming = sum(upload.coming for upload in self._uploads)
        if self._used + coming > self._max_bytes:
            raise DiskFullError(TOO_MUCH.format(most=self._max_bytes / 1e6))
        self._folder.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(self._folder).free <= coming:
            raise DiskFullError(FULL)

    def arrived(self, paths: Iterable[str]) -> None:
        """Register uploaded files that wait to be parsed."""
        with self._lock:
            self._unread.update(paths)

    def was_read(self, paths: Iterable[str]) -> None:
        """Remove uploaded files that were parsed, unless another upload of the same files waits."""
        for path in paths:
            with self._lock:
                if path in self._unread:
                    self._unread[path] -= 1
                    if not self._unread[path]:
                        del self._unread[path]
                        _remove(Path(path))
                        with suppress(OSError):  # there may be one of the same content and another name
                            Path(path).parent.rmdir()

    def new_folder(self) -> Path:
        """Create a folder with a random name of 128 bits for one user. Raises DiskFullError."""
        self.check()
        folder = self._folder / SESSIONS / secrets.token_hex(16)
        folder.mkdir(parents=True)
        return folder

    def sweep(self) -> None:
        """Remove expired files."""
        for folder, age_s in ((self._folder, UPLOAD_AGE_S), (self._folder / SESSIONS, DOWNLOAD_AGE_S)):
            for path in folder.glob("*"):
                with suppress(FileNotFoundError):
                    if path.name != SESSIONS and path.stat().st_mtime < time.time() - age_s:
                        _remove(path)
        with self._lock:
            for gone in [path for path in self._unread if not os.path.exists(path)]:
                del self._unread[gone]

    def sweep_forever(self) -> None:
        """Sweep once a minute."""
        while True:
            time.sleep(SWEEP_S)
            self.sweep()

    def _remove_parts(self) -> None:
        """Remove incomplete files of no active upload, which gradio leaves after an aborted upload."""
        with self._lock:
            began = min((upload.began for upload in self._uploads), default=float("inf"))
        with suppress(FileNotFoundError), os.scandir(self._folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    if entry.is_file() and entry.stat().st_mtime < began - CLOCK_S:
                        os.remove(entry)


def remove_folder(folder: Path | None) -> None:
    """Remove a folder of Disk.new_folder, if there is one."""
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def _used_bytes(folder: Path) -> int:
    """Return the bytes that all files and folders in a folder take, in whole blocks."""
    total = 0
    for root, folders, files in os.walk(folder):
        for name in (*folders, *files):
            with suppress(FileNotFoundError):
                total += max(1, -(-os.stat(os.path.join(root, name)).st_size // BLOCK)) * BLOCK
    return total


def _remove(path: Path) -> None:
    """Remove a file or a folder, which may be gone already."""
    if path.is_dir():
        remove_folder(path)
    else:
        path.unlink(missing_ok=True)
