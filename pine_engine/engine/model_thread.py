"""The thread in which models compute: one for all jobs, a second only while the first is busy.

torch's OpenMP keeps a team of threads for each thread that calls it. As soon as the teams of a process have
more threads than there are cores, all of them sleep after each small operation in place of waiting for the
next, whether the other team works or not, and a decoding step has hundreds. So loading, proving, reading and
writing are done by one thread, which lives on, whoever asks: a command, a notebook, a visitor of the page.
"""

import os
import queue
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import closing
from typing import TypeVar

Result = TypeVar("Result")
Item = TypeVar("Item")


class _ModelThread(threading.Thread):
    def __init__(self) -> None:
        super().__init__(name="pine-engine-model", daemon=True)
        self.jobs: queue.SimpleQueue[Callable[[], bool]] = queue.SimpleQueue()
        self.start()

    def run(self) -> None:
        while self.jobs.get()():
            pass


class _Threads:
    """The thread that has nothing to do, if there is one, and with how many of its own torch computes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: _ModelThread | None = None
        self._num_threads: int | None = None

    def begin(self, job: Callable[[], None]) -> threading.Event:
        """Has a model thread do the job, which does not raise; sets what it returns when it is over."""
        import torch  # brought in by whoever computes: what merely names a job does without

        if threading.current_thread() is threading.main_thread():
            self._num_threads = torch.get_num_threads()
        over = threading.Event()

        def work() -> bool:
            # A thread that was started while a step is paced elsewhere would take that step's number.
            self._num_threads = self._num_threads or torch.get_num_threads()
            if torch.get_num_threads() != self._num_threads:
                torch.set_num_threads(self._num_threads)
            job()
            with self._lock:
                stays = self._idle is None
                if stays:
                    self._idle = thread
            over.set()
            return stays

        with self._lock:
            thread, self._idle = self._idle or _ModelThread(), None
        thread.jobs.put(work)
        return over


_threads = _Threads()


def _forget_threads() -> None:
    """A process that was forked has none of them."""
    global _threads
    _threads = _Threads()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)


def begin(job: Callable[[], None]) -> threading.Event:
    """Has a model thread do a job that does not raise, and returns at once; the event is set when it is over.

    torch computes it with as many threads as the main thread has set for itself.
    """
    return _threads.begin(job)


def compute(work: Callable[[threading.Event], Result]) -> Result:
    """What work returns or raises in a model thread; in the caller's if it is one.

    work: takes the flag that is set when the caller is interrupted meanwhile.
    """
    interrupted = threading.Event()
    if isinstance(threading.current_thread(), _ModelThread):
        return work(interrupted)
    outcome: Future[Result] = Future()

    def job() -> None:
        try:
            outcome.set_result(work(interrupted))
        except BaseException as error:  # handed to the caller, who raises it
            outcome.set_exception(error)

    begin(job)
    try:
        return outcome.result()
    finally:
        interrupted.set()


def compute_on(device: object, work: Callable[[], Result]) -> Result:
    """What work returns or raises, on the CPU in a model thread.

    device: where it computes, as torch has it or by its name. For any other there is no team to share, and
    hosts that lend a GPU for a while show it to the thread that asked.
    """
    return compute(lambda _: work()) if str(device) == "cpu" else work()


def computed(items: Generator[Item, None, None]) -> Generator[Item, None, None]:
    """The items, none of them None, each computed in a model thread when it is asked for."""
    with closing(items):
        while (item := compute(lambda _: next(items, None))) is not None:
            yield item
