"""Temporary folder of this process; folders of killed processes are removed at the next start."""

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from pine_engine.evaluation.shards import try_lock

PREFIX = "pine-explorer-"  # prefix of the folder name
LOCK = "lock"  # lock file that is held while the process lives


@contextmanager
def process_temp_dir(parent: Path) -> Iterator[Path]:
    """Create a private folder in the parent and remove it at the end; first remove stale ones.

    Without file locks, stale folders cannot be recognized and stay.
    """
    parent.mkdir(parents=True, exist_ok=True)
    folder, held = _new_folder(parent)
    try:
        for other in parent.glob(f"{PREFIX}*"):
            _remove_if_left(other, user=folder.lstat().st_uid)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if held:
            held.release()


def write_all_into(folder: Path) -> None:
    """Set the folder for temporary files of this process; gradio stores the path when it builds."""
    # Apart: gradio hands out what is in the first.
    served, temporary = folder / "served", folder / "temporary"
    for one in (served, temporary):
        one.mkdir()
    os.environ["GRADIO_TEMP_DIR"] = str(served)
    os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)


def _new_folder(parent: Path) -> tuple[Path, FileLock | None]:
    """Return a new folder and its lock, if the file system has locks."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        # Another process that starts now may take it for left behind, and remove it, before it is locked.
        with suppress(FileNotFoundError, Timeout):
            held = try_lock(folder / LOCK)
            if held is None or (folder / LOCK).exists():
                return folder, held


def _remove_if_left(folder: Path, *, user: int) -> None:
    """Remove such a folder of this user unless its process lives."""
    with suppress(OSError):
        found = folder.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == user and (held := try_lock(folder / LOCK)):
            shutil.rmtree(folder, ignore_errors=True)
            held.release()
