"""A folder of this process's own, which goes with it; that of a killed process goes at the next start."""

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from pine_engine.evaluation.shards import try_lock

PREFIX = "pine-explorer-"
"""How the name of such a folder begins."""

LOCK = "lock"
"""The file in it that is locked as long as its process lives."""


@contextmanager
def own_folder(parent: Path) -> Iterator[Path]:
    """A new folder in the parent that this user alone can read; removed at the end with all that is in it.

    First those of processes that have ended are removed. Where the file system has no locks nobody can tell
    which have, and they stay.
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
    """Has what this process writes for a while written into the folder; gradio notes where when it builds."""
    # Apart: gradio hands out what is in the first.
    served, temporary = folder / "served", folder / "temporary"
    for one in (served, temporary):
        one.mkdir()
    os.environ["GRADIO_TEMP_DIR"] = str(served)
    os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)


def _new_folder(parent: Path) -> tuple[Path, FileLock | None]:
    """A new folder, and its lock, where the file system has locks."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        # Another process that starts now may take it for left behind, and remove it, before it is locked.
        with suppress(FileNotFoundError, Timeout):
            held = try_lock(folder / LOCK)
            if held is None or (folder / LOCK).exists():
                return folder, held


def _remove_if_left(folder: Path, *, user: int) -> None:
    """Removes such a folder of this user unless the process lives whose it is."""
    with suppress(OSError):
        found = folder.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == user and (held := try_lock(folder / LOCK)):
            shutil.rmtree(folder, ignore_errors=True)
            held.release()
