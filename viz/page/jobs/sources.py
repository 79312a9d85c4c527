"""Models of the page, their loading, and the runs on them: models of the host and of tasks, and one other.

A user can select another model. One is loaded at a time; the next one waits until no run uses it.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import pine_engine as pine
from pine_engine.additions import find_addition
from pine_engine.errors import Cancelled, InputError, ModelError, PineError, is_out_of_memory, one_line
from pine_engine.methods.table import METHODS
from pine_engine.models.dtypes import RequestedDtype, known_dtype, resolve_dtype
from pine_engine.models.listing import LoadableModel, describe
from pine_engine.models.load import context_words, fetch
from pine_engine.models.resources import free_memory, release_memory
from pine_engine.prompts.tasks import TASKS
from pine_engine.scheduling.runs import Caller, Job, Runs, RunState, StopFlag
from viz.page.jobs.connection_tracker import current_caller
from viz.page.jobs.kept_runs import KeptRuns

if TYPE_CHECKING:  # imports torch
    from pine_engine.endpoint.client import Endpoint

log = logging.getLogger(__name__)

Stage = Literal["loading", "ready", "failed", "away"]


@dataclass(frozen=True)
class Status:
    """State of the model, and a sentence for the user."""

    stage: Stage
    sentence: str


class EngineSource:
    """Loader of one engine or endpoint; `for_all` is True for the model of the host."""

    def __init__(
        self, load: "Callable[[], pine.Engine | Endpoint]", name: str, *, for_all: bool = True
    ) -> None:
        self.for_all = for_all
        self._load = load
        self._name = name
        self._settled = threading.Event()
        self._starting = threading.Lock()
        self._engine: pine.Engine | Endpoint | None = None
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
        """Load in this thread and return the engine; only for a loader that has not started.

        Raises PineError if loading fails.
        """
        with self._starting:
            assert self._thread.ident is None and not self._settled.is_set()
            self._run()
        engine = self.wait(0)
        assert engine is not None
        return cast("pine.Engine", engine)  # an endpoint has nothing to load here

    def wait(self, seconds: float) -> "pine.Engine | Endpoint | None":
        """Return the engine, or None if it is still loading after `seconds`.

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
            return Status("ready", self._described)
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
                + (f" · only methods that need {engine.meets} fit" if engine.meets != "placement" else "")
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


SMALL_MODEL_S = 20.0  # maximum wait, in seconds, for the model of a task, which has some megabytes
WAIT_S = 0.5  # seconds between two checks whether a waiting load can go on or was cancelled


@dataclass(frozen=True)
class Choice:
    """Model and dtype."""

    name: str  # name for `pine_engine.models.load.load`, or its public form
    dtype: RequestedDtype


@dataclass
class _Other:
    """Model other than that of the host: waiting for its turn, loading, or loaded."""

    source: EngineSource
    users: int = 0  # runs and users that use it or wait for it
    bytes: int = 0  # memory of the loaded model


class Sources:
    """Models of the page, with the runs on them.

    Args:
        host: Name and dtype of the model of the host.
        main: Model of the host.
        own: Models of tasks, by name.
        runs: Owner of the runs.
        device: Device of other models.
        allowed: Names of the models besides that of the host; None for any. Users see only the last part of
            local paths.
    """

    def __init__(
        self,
        host: Choice,
        main: EngineSource,
        own: Mapping[str, EngineSource] | None = None,
        *,
        runs: Runs | None = None,
        device: str = "cpu",
        allowed: Collection[str] | None = (),
    ) -> None:
        self.host = Choice(shown(host.name), host.dtype)
        self.main = main
        self.runs = runs or Runs()
        self.kept = KeptRuns(lambda: self.runs.queue.is_awaited)
        self.device = device
        self._own = dict(own or {})
        self._named = {shown(name): name for name in (host.name, *(allowed or ()))}
        self.allowed = None if allowed is None else tuple(self._named)
        self._others: dict[Choice, _Other] = {}
        self._lock = threading.Lock()
        self._loading = threading.Lock()

    def submit(
        self,
        job: Job,
        task: str,
        chosen: Choice | None = None,
        stop: StopFlag | None = None,
        caller: Caller | None = None,
    ) -> tuple[RunState, Generator[Any, None, None]]:
        """Return a new run on the model of a task, and its steps; by default of the client of this thread.

        See `Runs.submit` for the steps and their errors. The log names known methods only.
        """
        is_known = find_addition("pine_engine.lab", "find_measured", METHODS.get)
        run = self.runs.new(job.what, [name for name in job.methods if is_known(name)], stop)
        return run, self.runs.submit(run, job, self.lease(task, chosen), caller or current_caller())

    @contextmanager
    def lease(self, task: str, chosen: Choice | None = None) -> Iterator[EngineSource]:
        """Load the model of a task if necessary, and keep it until the block ends.

        Tasks with their own model ignore `chosen`; None is the model of the host. A load without users is
        cancelled. Raises PineError if a model is missing or not allowed.
        """
        if name := TASKS[task].model:
            yield self._of_task(name)
            return
        choice = self.choice(chosen.name, chosen.dtype) if chosen else self.host
        if choice == self.host:
            yield self.main
            return
        with self._lock:
            other = self._others.get(choice) or self._add(choice)
            other.users += 1
        other.source.start()
        try:
            yield other.source
        finally:
            with self._lock:
                other.users -= 1
                if not other.users and other.source.status.stage == "loading":
                    other.source.is_cancelled = True
                    self._discard(choice, other)

    def now(self, task: str, chosen: Choice | None = None) -> "pine.Engine | Endpoint | None":
        """Return the engine of a task, None if it is not loaded; a small one is waited for.

        Raises PineError if loading failed.
        """
        if name := TASKS[task].model:
            return self._of_task(name).wait(SMALL_MODEL_S)
        source = self._source(chosen or self.host)
        return source.wait(0) if source else None

    def status(self, chosen: Choice | None) -> Status:
        """Return the status of a model; None is that of the host."""
        choice = chosen or self.host
        if source := self._source(choice):
            return source.status
        reload = "Run to reload it, or select another model."
        return Status("away", f"{choice.name} ({choice.dtype}) was unloaded to free memory. {reload}")

    def choice(self, name: str, dtype: str) -> Choice:
        """Return the selected model. Raises PineError if it is not allowed."""
        name = name.strip()
        if self.allowed is not None and name not in self.allowed:
            raise InputError(
                f"Model not allowed on this server. Available: {', '.join(self.allowed)}. "
                "To use other models, run PINE Explorer locally."
            )
        return Choice(name, known_dtype(dtype))

    def about(self, choice: Choice) -> LoadableModel:
        """Return facts about a model before it is loaded. Raises PineError."""
        choice = self.choice(choice.name, choice.dtype)
        return replace(describe(self._named.get(choice.name, choice.name)), name=choice.name)

    def free(self) -> int:
        """Return the bytes that another model can take in place of the one that is loaded."""
        with self._lock:
            return free_memory(self.device) + sum(other.bytes for other in self._others.values())

    def _of_task(self, name: str) -> EngineSource:
        """Return the started engine source of a model that tasks have of their own."""
        if name not in self._own:
            raise PineError(f"Model {name}, required for this task, is not available.")
        self._own[name].start()
        return self._own[name]

    def _source(self, choice: Choice) -> EngineSource | None:
        if choice == self.host:
            return self.main
        other = self._others.get(choice)
        return other.source if other else None

    def _add(self, choice: Choice) -> _Other:
        def load() -> "pine.Engine":
            try:
                return self._load(choice, other)
            except Exception:
                with self._lock:
                    self._discard(choice, other)  # so that the next run tries again
                raise

        other = self._others[choice] = _Other(EngineSource(load, choice.name, for_all=False))
        return other

    def _discard(self, choice: Choice, other: _Other) -> None:
        if self._others.get(choice) is other:
            del self._others[choice]

    def _load(self, choice: Choice, other: _Other) -> "pine.Engine":
        report = other.source.report
        # Two threads cannot import transformers at once: the second gets an incomplete module.
        while self.main.status.stage == "loading":
            report(0.0, "waiting for the default model to load")
            time.sleep(WAIT_S)
        model, name = self.about(choice), self._named.get(choice.name, choice.name)
        if not model.supported:
            raise ModelError(f"Cannot load {choice.name}: {model.reason}.")
        dtype = resolve_dtype(choice.dtype, self.device, stored=model.stored)
        model.check_memory(dtype, self.free(), self.device)
        fetch(name, report)
        while not self._loading.acquire(timeout=WAIT_S):
            report(1.0, "waiting for another model to load")
        try:
            while not self._unload():
                report(1.0, "waiting for the runs of another model")
                time.sleep(WAIT_S)
            model.check_memory(dtype, free_memory(self.device), self.device)
            report(1.0, "reading weights")
            engine = pine.Engine.load(name, dtype=choice.dtype, device=self.device, progress=report)
            other.bytes = model.memory_bytes(dtype)
            return engine
        finally:
            self._loading.release()

    def _unload(self) -> bool:
        """Unload the loaded model; return False if a run uses it."""
        with self._lock:
            loaded = [choice for choice, other in self._others.items() if other.bytes]
            if any(self._others[choice].users for choice in loaded):
                return False
            for choice in loaded:
                del self._others[choice]
        if loaded:
            release_memory(self.device)
        return True


def shown(name: str) -> str:
    """Return the public form of a model name: of a path its last part."""
    path = Path(name)
    is_path = path.is_absolute() or name.startswith((".", "~")) or path.suffix == ".gguf"
    return path.name if is_path else name
