"""Temporary folder of this process, and removal of those of killed ones."""

import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pine_engine.file_locks import try_lock

PREFIX = "pine-explorer-"  # prefix of the name of the temporary folder
LOCK = "lock"  # lock file in the temporary folder that is held while the process lives
START_S = 1.0  # seconds after which a folder without a lock is not that of a starting process


@contextmanager
def process_temp_dir(parent: Path) -> Iterator[Path]:
    """Create a private folder in the parent and remove it at the end; first remove those of killed processes.

    Without file locks, folders of killed processes cannot be recognized and stay.
    """
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=PREFIX, dir=parent, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        held = try_lock(folder / LOCK)
        for other in parent.glob(f"{PREFIX}*"):
            _remove_if_left(other, user=folder.lstat().st_uid)
        yield folder
        if held:
            held.release()


def _remove_if_left(folder: Path, *, user: int) -> None:
    """Remove such a folder of this user unless its process lives."""
    with suppress(OSError):
        found = folder.lstat()
        is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == user
        if is_own and time.time() - found.st_mtime > START_S and (held := try_lock(folder / LOCK)):
            shutil.rmtree(folder, ignore_errors=True)
            held.release()


def write_all_into(folder: Path) -> None:
    """Set the folder for temporary files of this process; gradio stores the path when it builds."""
    # Apart: gradio hands out what is in the first.
    served, temporary = folder / "served", folder / "temporary"
    for one in (served, temporary):
        one.mkdir()
    os.environ["GRADIO_TEMP_DIR"] = str(served)
    os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)
