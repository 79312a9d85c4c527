"""Models of the page and the runs on them: the model of the host, models of tasks, and one selected model.

A user can select a model. It replaces the selected model before it, once no run uses that.
"""

import threading
from collections.abc import Collection, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pine_engine as pine
from pine_engine.additions import find_addition
from pine_engine.errors import InputError, ModelError, PineError
from pine_engine.methods.table import METHODS
from pine_engine.models.dtypes import RequestedDtype, known_dtype, resolve_dtype
from pine_engine.models.listing import LoadableModel, describe
from pine_engine.models.load import fetch
from pine_engine.models.resources import free_memory, release_memory
from pine_engine.prompts.tasks import TASKS
from pine_engine.scheduling.job import Job
from pine_engine.scheduling.run_state import RunState, StopFlag
from pine_engine.scheduling.runs import Caller, Runs
from viz.page.jobs.connection_tracker import current_caller
from viz.page.jobs.kept_runs import KeptRuns
from viz.page.jobs.loader import EngineSource, Status

if TYPE_CHECKING:  # imports torch
    from pine_engine.backend import Backend

SMALL_MODEL_S = 20.0  # maximum wait, in seconds, for the model of a task, which has some megabytes


@dataclass(frozen=True)
class Choice:
    """Model and dtype."""

    name: str  # name for `pine_engine.models.load.load`, or its public form
    dtype: RequestedDtype


@dataclass
class _Selected:
    """Selected model: waiting for its turn, loading, or loaded."""

    source: EngineSource
    users: int = 0  # number of runs and users that use it or wait for it
    bytes: int = 0  # memory of the loaded model


class Sources:
    """Models of the page, with the runs on them.

    Args:
        host: Name and dtype of the model of the host.
        main: Model of the host.
        task_models: Models of tasks, by name.
        runs: Runs of the process.
        device: Device of selected models.
        allowed: Names of models that can be selected, besides that of the host; None for any. Without one,
            the model of the host is fixed, with its dtype. Users see only the last part of local paths.
    """

    def __init__(
        self,
        host: Choice,
        main: EngineSource,
        task_models: Mapping[str, EngineSource] | None = None,
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
        self._task_models = dict(task_models or {})
        self._named = {shown(name): name for name in (host.name, *(allowed or ()))}
        self.allowed = None if allowed is None else tuple(self._named)
        self.is_selectable = allowed is None or len(allowed) > 0  # False if visitors have the host's model
        self._others: dict[Choice, _Selected] = {}
        self._is_loading = False  # True while another model is loaded
        self._changed = threading.Condition()  # protects other models, their users, and `_is_loading`

    def submit(
        self,
        job: Job,
        task: str,
        chosen: Choice | None = None,
        stop: StopFlag | None = None,
        caller: Caller | None = None,
    ) -> tuple[RunState, Generator[Any, None, None]]:
        """Return a new run on the model of a task, and its steps, by default for the client of this thread.

        See `Runs.submit` for the steps and their errors. The log names only known methods.
        """
        is_known = find_addition("pine_engine.lab", "find_measured", METHODS.get)
        run = self.runs.new(job.operation, [name for name in job.methods if is_known(name)], stop)
        return run, self.runs.submit(run, job, self.lease(task, chosen), caller or current_caller())

    @contextmanager
    def lease(self, task: str, chosen: Choice | None = None) -> Iterator[EngineSource]:
        """Load the model of a task if necessary, and keep it loaded until the block ends.

        Loading is cancelled once no run waits for the model.

        Args:
            task: Task. If it has a model, `chosen` is ignored.
            chosen: Selected model; None for that of the host.

        Raises:
            PineError: If a model is missing or not allowed.
        """
        if name := TASKS[task].model:
            yield self._of_task(name)
            return
        choice = self.choice(chosen.name, chosen.dtype) if chosen else self.host
        if choice == self.host:
            yield self.main
            return
        with self._changed:
            other = self._others.get(choice) or self._add(choice)
            other.users += 1
        other.source.start()
        try:
            yield other.source
        finally:
            with self._changed:
                other.users -= 1
                if not other.users and other.source.status.stage == "loading":
                    other.source.is_cancelled = True
                    self._discard(choice, other)
                self._changed.notify_all()

    def now(self, task: str, chosen: Choice | None = None) -> "Backend | None":
        """Return the engine of a task, None if it is not loaded, after a wait for the small model of a task.

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
        """Return the bytes that a selected model can take in place of the loaded one."""
        with self._changed:
            return free_memory(self.device) + sum(other.bytes for other in self._others.values())

    def _of_task(self, name: str) -> EngineSource:
        """Return the model of a task, which is loaded from now on. Raises PineError if it is missing."""
        if name not in self._task_models:
            raise PineError(f"Model {name}, required for this task, is not available.")
        self._task_models[name].start()
        return self._task_models[name]

    def _source(self, choice: Choice) -> EngineSource | None:
        if choice == self.host:
            return self.main
        other = self._others.get(choice)
        return other.source if other else None

    def _add(self, choice: Choice) -> _Selected:
        def load() -> "pine.Engine":
            try:
                return self._load(choice, other)
            except Exception:
                with self._changed:
                    self._discard(choice, other)  # so that the next run tries again
                raise

        other = self._others[choice] = _Selected(EngineSource(load, choice.name, for_all=False))
        return other

    def _discard(self, choice: Choice, other: _Selected) -> None:
        if self._others.get(choice) is other:
            del self._others[choice]

    def _load(self, choice: Choice, other: _Selected) -> "pine.Engine":
        report = other.source.report
        if self.main.status.stage == "loading":
            # Two threads cannot import transformers at once: the second gets an incomplete module.
            report(0.0, "waiting for the default model to load")
            with suppress(PineError):
                self.main.wait(None)
        report(0.0, "")
        model, name = self.about(choice), self._named.get(choice.name, choice.name)
        if not model.supported:
            raise ModelError(f"Cannot load {choice.name}: {model.reason}.")
        dtype = resolve_dtype(choice.dtype, self.device, stored=model.stored)
        model.check_memory(dtype, self.free(), self.device)
        fetch(name, report)
        with self._turn(other.source):
            model.check_memory(dtype, free_memory(self.device), self.device)
            engine = pine.Engine.load(name, dtype=choice.dtype, device=self.device, progress=report)
            other.bytes = model.memory_bytes(dtype)
            return engine

    @contextmanager
    def _turn(self, source: EngineSource) -> Iterator[None]:
        """Unload the loaded model, once no run uses it, and let no other one be loaded in the block.

        Raises Cancelled if the load was cancelled.
        """
        with self._changed:
            while reason := self._obstacle():
                source.report(1.0, f"waiting for {reason}")
                self._changed.wait()
            source.report(1.0, "reading weights")
            self._is_loading = True
            loaded = [choice for choice, other in self._others.items() if other.bytes]
            for choice in loaded:
                del self._others[choice]
        try:
            if loaded:
                release_memory(self.device)
            yield
        finally:
            with self._changed:
                self._is_loading = False
                self._changed.notify_all()

    def _obstacle(self) -> str:
        """Return what the next model waits for; "" if it can be loaded."""
        if self._is_loading:
            return "another model to load"
        is_used = any(other.bytes and other.users for other in self._others.values())
        return "the runs of another model" if is_used else ""


def shown(name: str) -> str:
    """Return the public form of a model name: of a path its last part."""
    path = Path(name)
    is_path = path.is_absolute() or name.startswith((".", "~")) or path.suffix == ".gguf"
    return path.name if is_path else name
