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
from typing import TYPE_CHECKING, Any, TypeVar

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


def common_dtype(asked: str, begun_in: str | None, state: "PartialState") -> str:
    """The dtype in which every process of the run loads its model; waits for the main process.

    auto may be another one each time that it is measured, and the records of a run are of one. begun_in: that
    of the run which is gone on with, None for a new one.
    """
    from accelerate.utils import broadcast_object_list

    from pine_engine.models.dtypes import go_by, seconds_of_a_step

    if asked != "auto":
        return asked
    told: list[Any] = [begun_in, {}]
    if state.is_main_process and begun_in is None and state.device.type == "cpu":
        told[1] = seconds_of_a_step()
    try:
        broadcast_object_list(told)
    except RuntimeError:  # as in all_arrive
        return asked
    found, seconds = told
    go_by(seconds)
    return found or asked


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
    try:
        state.wait_for_everyone()
    except RuntimeError:  # torch.distributed's word for a connection that was closed
        return False
    state.destroy_process_group()
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
