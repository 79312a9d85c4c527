"""The runs of this process: how long each may take, how each ended, and one line of log for each.

A line has no word of what a visitor wrote: no question, document, title, answer or name of a file.
"""

import json
import logging
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pine_engine.debias.table import find_measured
from pine_engine.errors import Cancelled, PineError
from viz.page.jobs.cost import Speed, Work
from viz.page.jobs.memory import give_back_memory

if TYPE_CHECKING:  # importing the engine imports torch, which would keep the page waiting
    from pine_engine.engine.engine import Engine

log = logging.getLogger("pine_explorer.runs")

SHUTTING_DOWN = "The page is being shut down."


@dataclass
class StopFlag:
    """Whether the visitor pressed Stop: written by the Stop button, read by the run, one per session.

    gradio can cancel an event by itself, but then the page hears that it ended before the model has
    stopped, and now and then that it failed. A run that ends itself says when it has.
    """

    requested: bool = False


@dataclass(eq=False)
class LoggedRun:
    """One run."""

    what: str
    """Which of the page's jobs or calls."""

    methods: tuple[str, ...]
    stop: StopFlag
    max_seconds: float | None
    """That it may take; None for as long as it takes."""

    model: str = ""
    """Its name, once it is there."""

    done: Work = field(default_factory=Work)
    """The work that is done, written by the run while it goes on."""

    outcome: str = "done"
    """"done", "stopped", "timeout", "shutdown", "client_disconnected", "rejected" for invalid input, or
    "failed: " and the class of the error.
    """

    why: str | None = None
    """It had to end before it was done, as a sentence."""

    failure: str | None = None
    """Why it came to nothing, as a sentence."""

    complete: bool = False
    """All that was asked is there, so that nothing ends it any more."""

    ended: bool = False
    """By the process, which shuts down."""

    _began: float = field(default_factory=time.monotonic)

    def start(self, engine: "Engine") -> None:
        """The model is there: the time counts from now."""
        self.model = engine.model_name
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        """How long it has taken, without the wait for the model."""
        return time.monotonic() - self._began

    def over(self) -> str | None:
        """Why it must end now, as a sentence; None if it may go on."""
        if self.complete:
            return None
        if self.stop.requested:
            self.outcome, self.why = "stopped", "Stopped."
        elif self.ended:
            self.outcome, self.why = "shutdown", SHUTTING_DOWN
        elif self.model and self.max_seconds is not None and self.seconds > self.max_seconds:
            self.outcome = "timeout"
            self.why = (
                f"The time limit of {self.max_seconds:g} s was reached; to get to the end, ask for fewer "
                "methods, orders or documents, or for shorter answers."
            )
        return self.why

    def log_line(self) -> str:
        """The line of the log, a JSON object. Methods that there are not are not named."""
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
            }
        )


class RunLog:
    """All runs of a process: those that go on, how the others ended, and how fast they were.

    max_seconds: that one may take, None for as long as it takes.
    """

    def __init__(self, max_seconds: float | None = None) -> None:
        self._speeds: dict[str, Speed] = defaultdict(Speed)
        self.outcomes: Counter[str] = Counter()
        self.closing = False
        self._most_seconds = max_seconds
        self._changed = threading.Condition()
        self._open: set[LoggedRun] = set()

    @property
    def open(self) -> int:
        """How many go on now, with those that wait for the model."""
        return len(self._open)

    def speed(self, model: str) -> Speed:
        """How fast the runs of that model were."""
        with self._changed:
            return self._speeds[model]

    def new(self, what: str, methods: Sequence[str], stop: StopFlag | None = None) -> LoggedRun:
        """A run that has not begun."""
        return LoggedRun(what, tuple(methods), stop or StopFlag(), self._most_seconds)

    @contextmanager
    def watched(self, run: LoggedRun) -> Iterator[LoggedRun]:
        """Counts the run while the block goes on; then logs how it ended, and learns how fast it was."""
        run.stop.requested = False
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
                self.outcomes[run.outcome.partition(":")[0]] += 1
                self._changed.notify_all()
            if run.outcome == "done":  # what was broken off took time for what is not counted
                self.speed(run.model).learn(run.done, run.seconds)
            if run.model:
                give_back_memory()
            log.info(run.log_line())

    def close(self, patience_s: float) -> bool:
        """Lets no run begin any more, and gives those that go on so many seconds to end.

        Those that have not ended then are told to. Returns whether all had ended by themselves.
        """
        with self._changed:
            self.closing = True
            if self._changed.wait_for(lambda: not self._open, patience_s):
                return True
            for run in self._open:
                run.ended = True
            return False

    def wait(self, seconds: float) -> bool:
        """Whether no run goes on any more, after at most so many seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._open, seconds)
