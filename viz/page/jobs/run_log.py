"""Runs of this process: time limits, outcomes and one line of log for each.

The log has no user text: no question, document, title, answer or file name.
"""

import ctypes
import json
import logging
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pine_engine as pine
from pine_engine.debias.table import find_measured
from pine_engine.errors import Cancelled, PineError
from viz.page.jobs.cost import Speed, Work

log = logging.getLogger("pine_explorer.runs")

SHUTTING_DOWN = "The server is shutting down."


def trim_memory() -> None:
    """Release memory that glibc keeps after a run, which can be hundreds of megabytes; no-op elsewhere."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


@dataclass
class StopFlag:
    """Stop flag of a session, set by the Stop button and checked by the run.

    Cancelling a gradio event reports its end before the model has stopped.
    """

    requested: bool = False


@dataclass(eq=False)
class LoggedRun:
    """One run."""

    what: str  # job or endpoint
    methods: tuple[str, ...]
    stop: StopFlag
    max_seconds: float | None  # timeout in seconds; None for no limit
    model: str = ""  # name of the model, once loaded
    done: Work = field(default_factory=Work)  # completed work, updated during the run
    outcome: str = "done"
    """"done", "stopped", "timeout", "shutdown", "client_disconnected", "rejected" for invalid input, or
    "failed: " and the class of the error.
    """

    why: str | None = None  # reason for an early stop, as a sentence
    failure: str | None = None  # reason for a failure, as a sentence
    is_upload: bool = False  # True for the parsing of an upload, which is logged and ended but not counted
    is_follower: bool = False  # True if an equal request of another client started the computation
    complete: bool = False  # True once all results are complete, so that the run cannot be stopped any more
    ended: bool = False  # True if the process shuts down
    _began: float = field(default_factory=time.monotonic)

    def start(self, engine: "pine.Engine", began: float) -> None:
        """Start the timeout at the time at which the computation began."""
        self.model = engine.model_name
        self._began = began

    @property
    def seconds(self) -> float:
        """Return the duration in seconds, without the wait for the model; of a follower, since the start."""
        return time.monotonic() - self._began

    def over(self) -> str | None:
        """Return the reason for which the run must end now; None if it may continue."""
        if self.complete:
            return None
        if self.stop.requested:
            self.outcome, self.why = "stopped", "Stopped."
        elif self.ended:
            self.outcome, self.why = "shutdown", SHUTTING_DOWN
        elif self.model and self.max_seconds is not None and self.seconds > self.max_seconds:
            self.outcome = "timeout"
            self.why = (
                f"Timeout: the run exceeded {self.max_seconds:g} s. Use fewer methods, orders or documents, "
                "or lower “Max new tokens”."
            )
        return self.why

    def log_line(self) -> str:
        """Return the log line, a JSON object; unknown methods are not named."""
        return json.dumps(
            {
                "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
                "operation": self.what,
                "model": self.model,
                "methods": [name for name in self.methods if find_measured(name)],
                "prompt_tokens": self.done.prompt_tokens,
                "new_tokens": self.done.new_tokens,
                "orders": self.done.orders,
                "seconds": round(self.seconds, 3),
                "outcome": self.outcome,
                "shared": self.is_follower,
            }
        )


class RunLog:
    """Active runs, outcomes and speed of a process."""

    def __init__(self, max_seconds: float | None = None) -> None:
        self._speeds: dict[str, Speed] = defaultdict(Speed)
        self.outcomes: Counter[str] = Counter()
        self.closing = False
        self._most_seconds = max_seconds
        self._changed = threading.Condition()
        self._open: set[LoggedRun] = set()

    @property
    def open(self) -> int:
        """Return the number of active runs, including waiting ones, without uploads."""
        with self._changed:
            return sum(not run.is_upload for run in self._open)

    def speed(self, model: str) -> Speed:
        """Return the speed of the runs of that model."""
        with self._changed:
            return self._speeds[model]

    def new(self, what: str, methods: Sequence[str], stop: StopFlag | None = None) -> LoggedRun:
        """Create a run that has not started, and reset the stop flag, also of an earlier run."""
        stop = stop or StopFlag()
        stop.requested = False
        return LoggedRun(what, tuple(methods), stop, self._most_seconds)

    @contextmanager
    def watched(self, run: LoggedRun) -> Iterator[LoggedRun]:
        """Count the run while the block runs; then log its outcome and learn its speed."""
        with self._changed:
            run.ended = self.closing
            self._open.add(run)
        try:
            yield run
        except (GeneratorExit, Cancelled):  # the visitor closed the page
            run.outcome = "client_disconnected"
            raise
        except PineError:
            run.outcome = "rejected" if run.why is None else run.outcome
            raise
        except Exception as error:
            run.outcome = f"failed: {type(error).__name__}"
            raise
        finally:
            with self._changed:
                self._open.discard(run)
                if not run.is_upload:
                    self.outcomes[run.outcome.partition(":")[0]] += 1
                self._changed.notify_all()
            if run.model and not run.is_follower:
                if run.outcome == "done":  # what was broken off took time for what is not counted
                    self.speed(run.model).learn(run.done, run.seconds)
                trim_memory()
            log.info(run.log_line())

    def close(self, patience_s: float) -> bool:
        """Reject new runs, wait up to `patience_s` for active ones and stop the rest.

        Returns True if all ended in time.
        """
        with self._changed:
            self.closing = True
            if self._changed.wait_for(lambda: not self._open, patience_s):
                return True
            for run in self._open:
                run.ended = True
            return False

    def wait(self, seconds: float) -> bool:
        """Wait up to `seconds`; return True if no run is active."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._open, seconds)
