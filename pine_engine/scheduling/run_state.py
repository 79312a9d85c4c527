"""State of a run from its start to its end."""

import json
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from pine_engine.scheduling.work import Work

SHUTTING_DOWN = "The server is shutting down."

EndReason = Literal[
    "done", "stopped", "timeout", "shutdown", "disconnected", "rejected", "out_of_memory", "failed"
]
"""Reason for which a run has ended; `rejected`: invalid input, or no place in the queue."""


@dataclass(frozen=True)
class End:
    """End of a run."""

    reason: EndReason
    sentence: str = ""  # for the user; "" for none
    error: str = ""  # class of an unexpected error


@dataclass
class StopFlag:
    """Stop flag of a session, set by the Stop button and checked by the run.

    Cancelling a gradio event reports its end before the model has stopped.
    """

    requested: bool = False


@dataclass(eq=False)
class RunState:
    """One run, from its start to its end."""

    operation: str
    methods: tuple[str, ...]
    stop: StopFlag
    max_seconds: float | None  # time limit in seconds; None for no limit
    is_upload: bool = False  # True for the parsing of an upload, which is not counted as a run
    model: str = ""  # name of the model, once loaded
    done: Work = field(default_factory=Work)  # completed work
    end: End | None = None
    is_follower: bool = False  # True if an equal run has started the computation
    is_complete: bool = False  # True once all results are there; the run cannot be stopped any more
    is_shut_down: bool = False  # True if the process ends
    began: float = field(default_factory=time.monotonic)  # start of the computation, once the model is loaded

    @property
    def seconds(self) -> float:
        """Return the seconds since the start of the computation, which a follower shares."""
        return time.monotonic() - self.began

    def must_end(self) -> bool:
        """Set the end after Stop, at the time limit, and during a shutdown; return True if it is set."""
        if self.is_complete:
            return False
        if self.stop.requested:
            self.end = End("stopped", "Stopped.")
        elif self.is_shut_down:
            self.end = End("shutdown", SHUTTING_DOWN)
        elif self.model and self.max_seconds is not None and self.seconds > self.max_seconds:
            advice = "Use fewer methods, orders or documents, or lower “Max new tokens”."
            self.end = End("timeout", f"Timeout: the run exceeded {self.max_seconds:g} s. {advice}")
        return self.end is not None

    def log_line(self, end: End) -> str:
        """Return the log line, a JSON object."""
        return json.dumps(
            {
                "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
                "operation": self.operation,
                "model": self.model,
                "methods": list(self.methods),
                "prompt_tokens": self.done.prompt_tokens,
                "new_tokens": self.done.new_tokens,
                "orders": self.done.orders,
                "seconds": round(self.seconds, 3),
                "outcome": f"failed: {end.error}" if end.reason == "failed" else end.reason,
                "shared": self.is_follower,
            }
        )
