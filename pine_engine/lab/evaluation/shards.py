"""Shards: several processes evaluate one dataset into one folder, each a part of the examples.

A lock file per shard refuses a second writer, also from another machine over NFSv4. The system releases the
lock when its process ends.
"""

import os
import re
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TypeVar

from filelock import Timeout

from pine_engine.errors import InputError
from pine_engine.file_locks import try_lock
from pine_engine.models.load import TENSOR_PARALLEL

Item = TypeVar("Item")


@dataclass(frozen=True)
class Shard:
    """Every `count`-th example, beginning with number `index`."""

    index: int = 0
    count: int = 1
    is_launched: bool = False  # True if `accelerate launch` or `torchrun` started all shards of the run

    def select(self, items: Sequence[Item]) -> list[Item]:
        """Return the items of this shard."""
        return list(items[self.index :: self.count])


def parse_shard(text: str | None = None) -> Shard:
    """Return the shard of a text `i/n`, or else that of RANK and WORLD_SIZE of a launcher."""
    if text is None:
        count = int(os.environ.get("WORLD_SIZE", "1"))
        return Shard(int(os.environ.get("RANK", "0")), count, is_launched=count > 1)
    found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text.strip())
    if not found or int(found[1]) >= int(found[2]):
        raise InputError(f"unknown shard: got {text!r}, expected i/n such as 0/4, with i < n", field="shard")
    return Shard(int(found[1]), int(found[2]))


def is_main_process() -> bool:
    """Check whether this process is the first of a launcher on its machine, or the only one."""
    return os.environ.get("LOCAL_RANK", "0") == "0"


def device_of_shard(device: str, shard: Shard) -> str:
    """Return the device of a shard: `cuda` is one GPU for each process of a launcher."""
    if device == TENSOR_PARALLEL:
        raise InputError(f"`evaluate` does not support the device {device!r}; give auto", field="device")
    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if device == "cuda" and shard.is_launched else device


@contextmanager
def lock_shard(folder: Path, shard: Shard) -> Iterator[bool]:
    """Refuse other writers of this shard inside the block. Yields False where files cannot be locked.

    The first shard also refuses to begin while a shard of a run with more of them is writing.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if shard.index == 0:
            names = (path.name.split(".")[1] for path in folder.glob("records.*.lock"))
            _try_locks(folder, [int(name) for name in names if name.isdecimal() and int(name) >= shard.count])
        lock = try_lock(_lock_file(folder, shard.index))
    except Timeout as error:
        problem = f"another `evaluate` is writing {folder}: it holds {Path(error.lock_file).name}"
        raise InputError(f"{problem}; wait, or give another folder") from None
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error.strerror}; give another folder") from error
    try:
        yield lock is not None
    finally:
        if lock:
            lock.release()


def is_running(folder: Path, shard: Shard) -> bool:
    """Check whether a process holds any other shard of the run; True also where this cannot be known."""
    try:
        return not _try_locks(folder, set(range(shard.count)) - {shard.index})
    except Timeout:
        return True


def _try_locks(folder: Path, indices: Iterable[int]) -> bool:
    """Lock and release each shard; False where files cannot be locked. Raises Timeout for a locked one."""
    for index in indices:
        lock = try_lock(_lock_file(folder, index))
        if lock is None:
            return False
        lock.release()
    return True


def _lock_file(folder: Path, index: int) -> Path:
    return folder / f"records.{index}.lock"


@contextmanager
def stop_on_signals(on_stop: Callable[[], None]) -> Iterator[threading.Event]:
    """Set the event on SIGINT and SIGTERM inside the block; the second SIGINT has the handler from before.

    `on_stop` is called at the first signal, because the next layer of a large model may take a while.
    An exception might be dropped in a destructor or a callback. Launchers send SIGTERM to all processes if
    one of them has died.
    """
    stopped = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, before[signal.SIGINT])
        if not stopped.is_set():
            stopped.set()
            on_stop()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
