"""Worker thread for all model computation; a second one exists only while the first is busy.

torch keeps a team of OpenMP threads for each calling thread. With more threads than cores, they sleep after
each small operation.
"""

import os
import queue
import threading
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from pine_engine.errors import Cancelled

Result = TypeVar("Result")
Item = TypeVar("Item")

Channel = queue.SimpleQueue[Item | BaseException | None]
"""Items of a stream, then None; an exception is raised again in the thread that receives it."""


def raise_if_cancelled(cancelled: threading.Event) -> None:
    """Raise Cancelled if the flag is set."""
    if cancelled.is_set():
        raise Cancelled("the run was stopped")


@dataclass(frozen=True)
class RunControl:
    """Receiver of the events of a run, and the flag that stops the run."""

    emit: Callable[[Any], None] | None = None
    cancelled: threading.Event = field(default_factory=threading.Event)

    def report(self, event: object) -> None:
        """Emit an event, if there is a receiver."""
        if self.emit:
            self.emit(event)

    def check(self, _: float = 0) -> None:
        """Raise Cancelled if the flag is set; called at the start of each layer."""
        raise_if_cancelled(self.cancelled)


NO_CONTROL = RunControl()  # control of a run that has no receiver and is not stopped


class _Worker(threading.Thread):
    """Thread that runs jobs until one returns False."""

    def __init__(self) -> None:
        super().__init__(name="pine-engine-model", daemon=True)
        self.jobs: queue.SimpleQueue[Callable[[], bool]] = queue.SimpleQueue()
        self.start()

    def run(self) -> None:
        while self.jobs.get()():
            pass


class _Workers:
    """Idle worker, if there is one, and the number of torch threads that workers use."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget the worker, which a fork does not have."""
        self._lock = threading.Lock()
        self._idle: _Worker | None = None
        self._num_threads: int | None = None

    def submit(self, job: Callable[[], None]) -> threading.Event:
        """Run a job that does not raise, with as many torch threads as the main thread; return its end."""
        import torch  # late: modules that only submit jobs load without torch

        if threading.current_thread() is threading.main_thread():
            self._num_threads = torch.get_num_threads()
        finished = threading.Event()

        def work() -> bool:
            # A thread that starts during a decoding step inherits the number of threads of this step.
            self._num_threads = self._num_threads or torch.get_num_threads()
            if torch.get_num_threads() != self._num_threads:
                torch.set_num_threads(self._num_threads)
            job()
            with self._lock:
                continues = self._idle is None
                if continues:
                    self._idle = thread
            finished.set()
            return continues

        with self._lock:
            thread, self._idle = self._idle or _Worker(), None
        thread.jobs.put(work)
        return finished


workers = _Workers()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=workers.reset)


def run_in_worker(work: Callable[[], Result]) -> Result:
    """Return the result of work in a worker, or in the calling thread if this is a worker."""
    if is_worker():
        return work()

    def submit(_: RunControl, outcome: Channel[Result]) -> threading.Event:
        def job() -> None:
            try:
                outcome.put(work())
            except BaseException as error:  # raised again in the calling thread
                outcome.put(error)

        return workers.submit(job)

    return wait_for(submit)


def is_worker() -> bool:
    """Check whether the calling thread is a worker."""
    return isinstance(threading.current_thread(), _Worker)


def wait_for(submit: Callable[[RunControl, Channel[Result]], threading.Event]) -> Result:
    """Return the item that submitted work puts into its channel, or raise it if it is an exception.

    The control stops the work if the caller is interrupted. `submit` returns the end of the work, which is
    waited for: if the interpreter exits while the worker releases a tensor, the process aborts.
    """
    control = RunControl()
    outcome: Channel[Result] = queue.SimpleQueue()
    finished = submit(control, outcome)
    try:
        item = outcome.get()
        finished.wait()
        if isinstance(item, BaseException):
            raise item
        return cast(Result, item)
    finally:
        control.cancelled.set()
        item = None  # see receive_from


def compute_on(device: object, work: Callable[[], Result]) -> Result:
    """Run work in a worker on the CPU, elsewhere in the calling thread, which has the GPU on ZeroGPU."""
    return run_in_worker(work) if str(device) == "cpu" else work()


def iterate_in_worker(items: Generator[Item, None, None]) -> Generator[Item, None, None]:
    """Yield the items of a generator, each computed in a worker when it is requested."""
    with closing(items):
        while (item := run_in_worker(lambda: next(items, None))) is not None:
            yield item


def stream_in_thread(
    work: Callable[[RunControl], None], *, beat: tuple[float, Item] | None = None
) -> Generator[Item, None, None]:
    """Yield the items that work reports from a thread of its own, in which it waits for a server.

    See `receive_from` for `beat`.
    """

    def submit(channel: Channel[Item], cancelled: threading.Event) -> threading.Event:
        finished = threading.Event()

        def run() -> None:
            try:
                work(RunControl(channel.put, cancelled))
            except BaseException as error:  # raised again in the calling thread
                channel.put(error)
            finally:
                channel.put(None)
                finished.set()

        threading.Thread(target=run, name="pine-engine-requests", daemon=True).start()
        return finished

    return receive_from(submit, beat)


def receive_from(
    submit: "Callable[[Channel[Item], threading.Event], threading.Event]",
    beat: tuple[float, Item] | None = None,
) -> Generator[Item, None, None]:
    """Yield the items that submitted work puts into its channel, until None.

    `submit` returns the end of the work. Closing the generator sets the flag of the work and waits for its
    end. `beat` is a time in seconds, and an item that is yielded after each such time without an item.
    """
    cancelled, channel = threading.Event(), queue.SimpleQueue[Item | BaseException | None]()

    def receive() -> Item | BaseException | None:
        seconds, item = beat or (None, None)
        try:
            return channel.get(timeout=seconds)
        except queue.Empty:
            return item

    finished = submit(channel, cancelled)
    try:
        while (item := receive()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        cancelled.set()
        finished.wait()
        # An error forms a cycle with its frames, which would keep their tensors until garbage collection.
        item = None
        while not channel.empty():
            channel.get()
