"""Files of users: one quota for all of them, and their removal."""

import errno
import os
import secrets
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pine_engine.errors import PineError

UPLOAD_AGE_S, DOWNLOAD_AGE_S = 3600.0, 86400.0  # maximum age of files
SWEEP_S = 60.0  # seconds between two sweeps
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


class Disk:
    """Quota of the folder of gradio's downloads and uploads."""

    def __init__(self, folder: Path, max_bytes: float) -> None:
        self._folder, self._max_bytes = folder, max_bytes
        self._lock = threading.Lock()
        self._num_uploads = 0  # that are active; changed in the server thread only
        self._num_bytes = 0  # of the last scan, and arrived since then
        self._next_scan_at = 0.0

    def check(self, num_arrived: int = 0) -> None:
        """Count bytes of an upload that have arrived. Raises DiskFullError if all files exceed the quota."""
        with self._lock:
            began = time.monotonic()
            self._num_bytes += num_arrived
            if began >= self._next_scan_at:
                self._num_bytes = _used_bytes(self._folder) + num_arrived
                now = time.monotonic()
                self._next_scan_at = now + max(SCAN_S, 10 * (now - began))
            if self._num_bytes > self._max_bytes:
                raise DiskFullError(TOO_MUCH.format(most=self._max_bytes / 1e6))

    @contextmanager
    def upload(self) -> Iterator[None]:
        """Mark an upload as active; after the last active one, remove the files that aborted ones left."""
        self._num_uploads += 1
        try:
            yield
        finally:
            self._num_uploads -= 1
            parts = [] if self._num_uploads else filter(Path.is_file, self._folder.glob("*"))
            for part in parts:
                part.unlink(missing_ok=True)

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
                    if path.name != SESSIONS and time.time() - path.stat().st_mtime > age_s:
                        remove_folder(path) if path.is_dir() else path.unlink()

    def sweep_forever(self) -> None:
        """Sweep once a minute."""
        while True:
            time.sleep(SWEEP_S)
            self.sweep()


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
