"""Where the page gets its engine: loaded once, in a background thread, while the page is already served."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pine_engine.errors import Cancelled, PineError
from pine_engine.prompts.tasks import get_task
from viz.page.jobs.queue import Line
from viz.page.jobs.run_log import Runs

if TYPE_CHECKING:  # importing the engine imports torch, which would keep the page waiting
    from pine_engine.engine.engine import Engine
    from viz.page.jobs.model_pool import Choice, Library

log = logging.getLogger(__name__)

Stage = Literal["loading", "ready", "failed", "away"]

SMALL_MODEL_S = 20.0
"""Longest wait, in seconds, for a model of some megabytes; a busy machine takes a few."""


@dataclass(frozen=True)
class Status:
    """How far the model is, and a sentence about it for the reader."""

    stage: Stage
    sentence: str


class EngineSource:
    """Loads one engine in a background thread and hands it out.

    load: makes the engine; runs in the thread. name: what the page calls the model meanwhile. for_all:
    whether all visitors wait for it, and not only who chose it.
    """

    def __init__(self, load: "Callable[[], Engine]", name: str, *, for_all: bool = True) -> None:
        self.for_all = for_all
        self._load = load
        self._name = name
        self._settled = threading.Event()
        self._starting = threading.Lock()
        self._engine: Engine | None = None
        self._described = ""
        self._failure = ""
        self._step = ""
        self._given_up = False
        self._started = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="load-model", daemon=True)

    def start(self) -> None:
        """Starts loading, unless that was done before; returns at once."""
        with self._starting:
            if self._thread.ident is None and not self._settled.is_set():
                self._started = time.monotonic()
                self._thread.start()

    def load_here(self) -> "Engine":
        """Loads in this thread and returns the engine; a source that has begun is not to be asked.

        Raises PineError if it could not be loaded.
        """
        with self._starting:
            assert self._thread.ident is None and not self._settled.is_set()
            self._run()
        engine = self.wait(0)
        assert engine is not None
        return engine

    def wait(self, seconds: float) -> "Engine | None":
        """The engine, or None if it is still loading after so many seconds.

        Raises PineError if it could not be loaded.
        """
        self._settled.wait(seconds)
        if self._failure:
            raise PineError(self._failure)
        return self._engine

    def report(self, part: float, words: str) -> None:
        """Takes how far the loading is. Raises Cancelled if it was given up; see models.load."""
        if self._given_up:
            raise Cancelled("the loading was given up")
        self._step = words

    def give_up(self) -> None:
        """Ends the loading at its next report."""
        self._given_up = True

    @property
    def model_name(self) -> str | None:
        """The loaded model's name; None before."""
        return None if self._engine is None else self._engine.model_name

    @property
    def status(self) -> Status:
        """How far the model is now."""
        if self._failure:
            return Status("failed", self._failure)
        if self._engine is not None:
            return Status("ready", self._described)
        seconds = int(time.monotonic() - self._started)
        step = f": {self._step}" if self._step else ""
        sentence = f"Loading {self._name}{step} ({seconds} s). You can write and press Run already."
        return Status("loading", sentence)

    def _run(self) -> None:
        try:
            engine = self._load()
            # Now, because on ZeroGPU other threads do not see that it is on a GPU.
            self._described = (
                f"{engine.model_name} · {engine.dtype} · {engine.device} · {engine.max_context:,} tokens"
                + (" · the order can change last bits" if engine.caveat else "")
            )
            if engine.caveat:
                log.warning(engine.caveat)
            self._engine = engine
        except PineError as error:
            self._failure = str(error)
        except Exception as error:
            log.exception("the model could not be loaded")
            self._failure = (
                f"The model {self._name} could not be loaded ({type(error).__name__}). "
                "The log of the server says why; restart it with another model."
            )
        finally:
            self._settled.set()


class Sources:
    """The engines of the page: the one it was started with, and those of tasks with a model of their own.

    own: by the name that Task.model gives; each is loaded when it is first needed. line: before them all.
    runs: of all of them. library: of models that visitors may choose; none if None.
    """

    def __init__(
        self,
        main: EngineSource,
        own: Mapping[str, EngineSource] | None = None,
        *,
        line: Line | None = None,
        runs: Runs | None = None,
        library: "Library | None" = None,
    ) -> None:
        self.main = main
        self.line = line or Line(most=0)
        self.runs = runs or Runs()
        self.library = library
        self._own = dict(own or {})

    @contextmanager
    def lease(self, task: str, chosen: "Choice | None" = None) -> Iterator[EngineSource]:
        """The source that answers a task for a visitor, whose model stays until the block is left.

        chosen: by the visitor; None for the model that the page was started with. Tasks with a model of their
        own are answered by that. Raises PineError as `of` does.
        """
        if chosen is None or self.library is None or get_task(task).model:
            yield self.of(task)
            return
        with self.library.lease(chosen) as source:
            yield source

    def status(self, chosen: "Choice | None") -> Status:
        """How far the model is that a visitor has chosen."""
        if chosen is None or self.library is None:
            return self.main.status
        return self.library.status(chosen)

    def of(self, task: str) -> EngineSource:
        """The source that answers a task. Raises PineError for a model that the page was started without."""
        name = get_task(task).model
        if not name:
            return self.main
        if name not in self._own:
            raise PineError(f"The model {name}, which answers this kind of question, is not there.")
        self._own[name].start()
        return self._own[name]

    def now(self, task: str, chosen: "Choice | None" = None) -> "Engine | None":
        """The engine that answers a task, None if it is not there; a small one is waited for.

        chosen: see lease. Raises PineError if it could not be loaded.
        """
        if chosen is not None and self.library is not None and not get_task(task).model:
            return self.library.loaded(chosen)
        return self.of(task).wait(SMALL_MODEL_S if get_task(task).model else 0)
