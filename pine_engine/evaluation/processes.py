"""The processes of a run under `accelerate launch`: whose examples are whose, and who has come to the end.

Started without it there is one process, and all is its own.
"""

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from types import FrameType
from typing import TYPE_CHECKING, TypeVar

from pine_engine.errors import InputError
from pine_engine.models.load import TENSOR_PARALLEL

if TYPE_CHECKING:  # brings torch, so that it is imported once there is something to compute
    from accelerate import PartialState

PATIENCE = timedelta(days=30)
"""How long a process waits for the others, whose examples may take longer."""

Item = TypeVar("Item")


def join(device: str) -> "PartialState":
    """This process among those of the run; waits until all have started.

    Raises InputError where processes share a model: here they share the examples.
    """
    if device == TENSOR_PARALLEL:
        raise InputError(
            f"device {device!r} splits one model among processes, and `evaluate` splits its examples among "
            "them; name another device, such as auto, which spreads a model over the GPUs of one process"
        )
    from accelerate import PartialState

    return PartialState(cpu=device == "cpu", timeout=PATIENCE)


def is_first_here() -> bool:
    """Whether this process is the one of its machine that speaks; known before it has joined."""
    return os.environ.get("LOCAL_RANK", "0") == "0"


def own_share(items: Sequence[Item], state: "PartialState") -> list[Item]:
    """Every n-th item for each of n processes: item i for process i modulo n."""
    return list(items[state.process_index :: state.num_processes])


def own_device(device: str, state: "PartialState") -> str:
    """Where this process computes: of several that ask for cuda each has a GPU of its own."""
    has_own = state.num_processes > 1 and device == state.device.type == "cuda"
    return str(state.device) if has_own else device


@contextmanager
def main_process_first(state: "PartialState") -> Iterator[None]:
    """Run the block in the main process, then in the others.

    Unlike the context manager of accelerate, the others also run the block if the main process has died, and
    so report why.
    """
    if not state.is_main_process:
        _wait(state)
    yield
    if state.is_main_process:
        _wait(state)


def first_reason(reason: str | None) -> str | None:
    """The first reason that a process of the run has not to begin, None if none has; waits for all.

    Its own if one of them has died: that is told at the end.
    """
    from accelerate.utils import gather_object

    try:
        reasons: list[str | None] = gather_object([reason])
    except RuntimeError:  # as in all_arrive
        return reason
    return next(filter(None, reasons), None)


def all_arrive(state: "PartialState") -> bool:
    """Waits for the other processes and parts from them; False if one of them has died."""
    arrived = _wait(state)
    if arrived:
        state.destroy_process_group()
    return arrived


def _wait(state: "PartialState") -> bool:
    try:
        state.wait_for_everyone()
    except RuntimeError:  # torch.distributed's word for a connection that was closed
        return False
    return True


@contextmanager
def ended_in_order() -> Iterator[threading.Event]:
    """Inside, Ctrl-C and being told to end set the event, so that work ends in order; twice, they interrupt.

    An exception could be raised where Python drops it, in a destructor or a callback. Being told to end is
    how the launcher ends the others when one process has died.
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
