"""Loader of a model of the page, in a thread, with its progress."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

import pine_engine as pine
from pine_engine.errors import Cancelled, PineError, is_out_of_memory, one_line
from pine_engine.models.load import context_words

if TYPE_CHECKING:  # imports torch
    from pine_engine.backend import Backend

log = logging.getLogger(__name__)

Stage = Literal["loading", "ready", "failed", "away"]


@dataclass(frozen=True)
class Status:
    """State of the model, a sentence for the user, and the reason why the model has no internals, if so."""

    stage: Stage
    sentence: str
    no_internals: str = ""


class EngineSource:
    """Loader of one engine or endpoint.

    Args:
        load: Return the model. Its errors become sentences for the user.
        name: Name of the model in these sentences.
        for_all: True for the model of the host, for which runs wait in the queue.
    """

    def __init__(self, load: "Callable[[], Backend]", name: str, *, for_all: bool = True) -> None:
        self.for_all = for_all
        self._load = load
        self._name = name
        self._settled = threading.Event()
        self._starting = threading.Lock()
        self._engine: Backend | None = None
        self._described = self._failure = self._step = ""
        self.is_cancelled = False  # True ends loading at its next report
        self._started = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="load-model", daemon=True)

    def start(self) -> None:
        """Start loading unless it has started; return at once."""
        with self._starting:
            if self._thread.ident is None and not self._settled.is_set():
                self._started = time.monotonic()
                self._thread.start()

    def load_here(self) -> "pine.Engine":
        """Load in this thread and return the engine, if loading has not started. Raises PineError."""
        with self._starting:
            assert self._thread.ident is None and not self._settled.is_set()
            self._run()
        engine = self.wait(0)
        assert engine is not None
        return cast("pine.Engine", engine)  # an endpoint has nothing to load here

    def wait(self, seconds: float | None) -> "Backend | None":
        """Return the engine, or None if it is still loading after `seconds`; None waits until it is loaded.

        Raises PineError if loading failed.
        """
        self._settled.wait(seconds)
        if self._failure:
            raise PineError(self._failure)
        return self._engine

    def report(self, part: float, words: str) -> None:
        """Store the progress of loading. Raises Cancelled if loading was cancelled; see models.load."""
        if self.is_cancelled:
            raise Cancelled("Model loading was cancelled.")
        self._step = words

    @property
    def model_name(self) -> str | None:
        """Return the name of the loaded model; None before."""
        return None if self._engine is None else self._engine.model_name

    @property
    def sentence(self) -> str:
        """Return the progress of loading, or its end, in words."""
        return self.status.sentence

    @property
    def status(self) -> Status:
        """Return the status of the model."""
        if self._failure:
            return Status("failed", self._failure)
        if self._engine is not None:
            return Status("ready", self._described, self._engine.misfit("traces") or "")
        seconds = int(time.monotonic() - self._started)
        step = f": {self._step}" if self._step else ""
        return Status("loading", f"Loading {self._name}{step} ({seconds} s)")

    def _run(self) -> None:
        try:
            engine = self._load()
            # In this thread, because in others the device on ZeroGPU is not a GPU.
            facts = [engine.model_name, engine.device]
            if context := engine.max_context_length:
                facts = [engine.model_name, engine.dtype, engine.device, f"{context_words(context)} tokens"]
            self._described = (
                " · ".join(facts)
                + (" · no methods that change attention" if engine.meets != "placement" else "")
                + (" · not bitwise order-invariant on this machine" if engine.invariance_warning else "")
            )
            if engine.invariance_warning:
                log.warning(engine.invariance_warning)
            self._engine = engine
        except PineError as error:
            self._failure = str(error)
            if self.for_all:  # other names are texts of visitors
                log.error("Model loading failed: %s", error)
        except Exception as error:
            log.exception("Model loading failed")
            reason = type(error).__name__
            if is_out_of_memory(error):
                reason = f"not enough memory: {one_line(error)}"
            self._failure = (
                f"Failed to load {self._name} ({reason}). See the server log, or restart with another model."
            )
        finally:
            self._settled.set()
