"""Shards: several processes evaluate one dataset into one folder, each a part of the examples.

A lock file per shard refuses a second writer, also from another machine over NFSv4. The system releases the
lock when its process ends.
"""

import errno
import os
import re
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TypeVar

from filelock import FileLock, Timeout

from pine_engine.errors import InputError
from pine_engine.models.load import TENSOR_PARALLEL

Item = TypeVar("Item")

_NO_LOCKS = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK}
"""Errors of file systems without locks, such as Lustre mounted without `-o flock`."""


@dataclass(frozen=True)
class Shard:
    """Every `count`-th example, beginning with number `index`.

    is_launched: True if `accelerate launch` or `torchrun` started all shards of the run.
    """

    index: int = 0
    count: int = 1
    is_launched: bool = False

    def select(self, items: Sequence[Item]) -> list[Item]:
        """Return the items of this shard."""
        return list(items[self.index :: self.count])


def parse_shard(text: str | None = None) -> Shard:
    """Parse a shard `i/n`. Without a text, RANK and WORLD_SIZE of a launcher select it."""
    if text is None:
        count = int(os.environ.get("WORLD_SIZE", "1"))
        return Shard(int(os.environ.get("RANK", "0")), count, is_launched=count > 1)
    found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text.strip())
    if not found or int(found[1]) >= int(found[2]):
        raise InputError(f"unknown shard: got {text!r}, expected i/n with i from 0 to n - 1, such as 0/4")
    return Shard(int(found[1]), int(found[2]))


def is_main_process() -> bool:
    """Check whether this process is the first of a launcher on its machine, or the only one."""
    return os.environ.get("LOCAL_RANK", "0") == "0"


def device_of_shard(device: str, shard: Shard) -> str:
    """Return the device of a shard: `cuda` is one GPU for each process of a launcher."""
    if device == TENSOR_PARALLEL:
        raise InputError(
            f"device {device!r} splits one model among processes, and `evaluate` splits its examples among "
            "them; name another device, such as auto, which spreads a model over the GPUs of one process"
        )
    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if device == "cuda" and shard.is_launched else device


@contextmanager
def lock_shard(folder: Path, shard: Shard) -> Iterator[bool]:
    """Refuse other writers of this shard inside the block. Yields False where files cannot be locked.

    The first shard also refuses to begin while a shard of a run with more of them is writing.
    """
    with ExitStack() as held:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if shard.index == 0:
                for path in folder.glob("records.*.lock"):
                    index = path.name.split(".")[1]
                    if index.isdecimal() and int(index) >= shard.count and (lock := try_lock(path)):
                        lock.release()
            path = _lock_file(folder, shard.index)
            lock = try_lock(path)
        except Timeout as error:
            raise InputError(
                f"another `evaluate` is writing {folder}: it holds {Path(error.lock_file).name}; wait until "
                "it has ended, or give another folder"
            ) from None
        except OSError as error:
            raise InputError(f"{folder} cannot be written: {error.strerror}; give another folder") from error
        if lock:
            held.callback(lock.release)
        yield lock is not None


def is_running(folder: Path, shard: Shard) -> bool:
    """Check whether a process holds any other shard of the run; True also where this cannot be known."""
    for index in set(range(shard.count)) - {shard.index}:
        try:
            lock = try_lock(_lock_file(folder, index))
        except Timeout:
            return True
        if lock is None:
            return True
        lock.release()
    return False


def try_lock(path: Path, timeout_s: float = 0) -> FileLock | None:
    """Lock a file; None where the file system has no locks. Raises Timeout if a process keeps it locked.

    timeout_s: seconds to wait for a lock; -1 for no limit.
    """
    lock = FileLock(path, timeout=timeout_s, thread_local=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        raise
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return None
    return lock


def _lock_file(folder: Path, index: int) -> Path:
    return folder / f"records.{index}.lock"


@contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """Set the event on SIGINT and SIGTERM inside the block; raise KeyboardInterrupt on the second signal.

    An exception could be raised where Python drops it, in a destructor or a callback. Launchers send SIGTERM
    to all processes if one of them has died.
    """
    stopped = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt
        stopped.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
