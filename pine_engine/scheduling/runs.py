"""Runs of a process: each is prepared once, queued, computed or shared, and ends for one reason.

The log contains no user text: no question, document, title, answer or file name.
"""

import ctypes
import logging
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Protocol

from pine_engine.errors import Cancelled, PineError
from pine_engine.scheduling.job import Job, PreparedJob
from pine_engine.scheduling.queue import FairQueue
from pine_engine.scheduling.run_state import End, RunState, StopFlag
from pine_engine.scheduling.shared import SharedRun
from pine_engine.scheduling.turns import ANONYMOUS, Client
from pine_engine.scheduling.work import Speed

log = logging.getLogger("pine_explorer.runs")

WAIT_S = 0.8  # seconds between two checks whether a waiting run can start or has been stopped


@dataclass(frozen=True)
class Caller:
    """Client that waits for a run.

    Attributes:
        client: Client by which the queue takes turns.
        is_listening: Return True if the client waits for the answer. Otherwise later runs start first.
        check: Raise Cancelled after the client has disconnected.
        check_s: Seconds between two checks while the run waits.
    """

    client: Client = ANONYMOUS
    is_listening: Callable[[], bool] = lambda: True
    check: Callable[[], None] = lambda: None
    check_s: float = WAIT_S


class LoadingModel(Protocol):
    """Model that may still be loading."""

    @property
    def for_all(self) -> bool:
        """Return True for the model of the host, which is loaded while a run has its place in the queue."""

    @property
    def sentence(self) -> str:
        """Return the progress of loading in words."""

    def wait(self, seconds: float) -> Any:
        """Return the engine, None if it is still loading after `seconds`. Raises PineError if that failed."""


class Runs:
    """Runs of a process, with their queue, time limit, counters, speed and log.

    Args:
        queue: Queue for the model. Default: one without waiting runs.
        max_seconds: Time limit of a computation in seconds; None for no limit.
        shares_equal_runs: True to compute equal requests once.
        compute: Return the views of a prepared job on an engine. Default: in this process.
    """

    def __init__(
        self,
        queue: FairQueue | None = None,
        *,
        max_seconds: float | None = None,
        shares_equal_runs: bool = True,
        compute: Callable[[Any, PreparedJob[Any]], Generator[Any, None, None]] | None = None,
    ) -> None:
        self.queue = queue or FairQueue(max_waiting=0)
        self.max_seconds = max_seconds
        self.outcomes: Counter[str] = Counter()
        self.is_closing = False
        self._compute = compute or (lambda engine, job: job.views(engine))
        self._shares_equal_runs = shares_equal_runs
        self._speeds: dict[str, Speed] = defaultdict(Speed)
        self._changed = threading.Condition()
        self._open: set[RunState] = set()

    @property
    def num_open(self) -> int:
        """Return the number of active runs, including waiting ones, without uploads."""
        with self._changed:
            return sum(not run.is_upload for run in self._open)

    @property
    def num_running(self) -> int:
        """Return the number of active runs that do not wait, including followers."""
        return self.num_open - self.queue.waiting

    def speed(self, model: str) -> Speed:
        """Return the speed of the runs of that model."""
        with self._changed:
            return self._speeds[model]

    def new(
        self,
        operation: str,
        methods: Sequence[str] = (),
        stop: StopFlag | None = None,
        *,
        is_upload: bool = False,
    ) -> RunState:
        """Create a run that has not started, and reset the stop flag, which earlier runs have used."""
        stop = stop or StopFlag()
        stop.requested = False
        return RunState(operation, tuple(methods), stop, self.max_seconds, is_upload)

    def submit(
        self, run: RunState, job: Job, lease: AbstractContextManager[LoadingModel], caller: Caller = Caller()
    ) -> Generator[Any, None, None]:
        """Yield sentences while the run waits for its turn and for the model, then the views of its job.

        The run follows an active run with an equal job; it may skip views of that, except the last one.
        Afterwards `run.end` is set. Closing the generator leaves the queue and stops the model. Errors of the
        job, of the queue and of loading are raised. `lease` keeps the model loaded.
        """
        try:
            with self.recorded(run), lease as source:
                yield from self._steps(run, job, source, caller)
        except Cancelled:
            return

    def _steps(
        self, run: RunState, job: Job, source: LoadingModel, caller: Caller
    ) -> Generator[Any, None, None]:
        if not source.for_all:  # before the queue, so that later runs do not wait for it
            yield from self._until_loaded(run, source, caller)
        request = (source, job.prepare, job.arguments) if self._shares_equal_runs else None
        prepare = cache(partial(_prepare, source, job))
        measure = partial(_measure, source, prepare)
        with self.queue.join(caller.client, caller.is_listening, request, measure) as ticket:
            while not run.must_end() and (num_ahead := ticket.wait(caller.check_s)):
                caller.check()
                yield ticket.sentence(num_ahead)
            yield from self._until_loaded(run, source, caller)
            if run.end:
                return
            engine = source.wait(0)
            shared = ticket.computation
            if shared is None:
                shared = ticket.start(SharedRun(request, self._compute(engine, prepare())))
            run.model, run.began, run.is_follower = engine.model_name, shared.began, ticket.is_follower
            if not run.is_follower and self.num_running > 1:
                yield "Started. The prefill takes turns with those of other runs."
            for view in shared.views():
                run.is_complete = getattr(view, "is_complete", False)
                run.done = getattr(view, "done", run.done)
                yield view
                caller.check()
                if run.must_end():
                    return

    def _until_loaded(
        self, run: RunState, source: LoadingModel, caller: Caller
    ) -> Generator[str, None, None]:
        while not run.must_end() and source.wait(caller.check_s) is None:
            caller.check()
            yield source.sentence

    @contextmanager
    def recorded(self, run: RunState) -> Iterator[None]:
        """Count the run while the block runs; then set its end, write the log line, and store its speed."""
        with self._changed:
            run.is_shut_down = self.is_closing
            self._open.add(run)
        end = End("done")
        try:
            yield
        except (GeneratorExit, Cancelled):  # the client has disconnected
            end = End("disconnected")
            raise
        except Exception as error:
            is_rejected = isinstance(error, PineError) and error.is_rejection
            end = End("rejected") if is_rejected else End("failed", error=type(error).__name__)
            raise
        finally:
            run.end = end = run.end or end
            with self._changed:
                self._open.discard(run)
                if not run.is_upload:
                    self.outcomes[end.reason] += 1
                self._changed.notify_all()
            if run.model and not run.is_follower:
                if end.reason == "done":  # an unfinished run also spends time on work that is not counted
                    self.speed(run.model).learn(run.done, run.seconds)
                trim_memory()
            log.info(run.log_line(end))

    def close(self, timeout_s: float) -> bool:
        """Reject new runs, wait up to `timeout_s` for active ones, and stop the others.

        Returns:
            True if all runs ended in time.
        """
        with self._changed:
            self.is_closing = True
            if self._changed.wait_for(lambda: not self._open, timeout_s):
                return True
            for run in self._open:
                run.is_shut_down = True
            return False

    def wait(self, seconds: float) -> bool:
        """Wait up to `seconds`; return True if no run is active."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._open, seconds)


def _prepare(source: LoadingModel, job: Job) -> PreparedJob[Any]:
    """Prepare a job on the loaded model."""
    return job.prepare(source.wait(0), **job.arguments)


def _measure(source: LoadingModel, prepare: Callable[[], PreparedJob[Any]]) -> float | None:
    """Return the memory of a job in bytes; None if it is unknown, or before the model is loaded."""
    return None if source.wait(0) is None else prepare().work.bytes_at_once or None


def trim_memory() -> None:
    """Return freed memory to the system, of which glibc keeps hundreds of megabytes; no-op without glibc."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)
