"""Engines of the page, that of the host, those of tasks, and selected ones, with their runs."""

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pine_engine as pine
from pine_engine.debias.table import find_measured
from pine_engine.errors import PineError
from pine_engine.prompts.tasks import TASKS
from pine_engine.scheduling.runs import Job, Runs, RunState, StopFlag
from viz.page.jobs.connection_tracker import current_caller
from viz.page.jobs.loading import EngineSource
from viz.page.jobs.model_pool import Choice, ModelPool

SMALL_MODEL_S = 20.0  # maximum wait, in seconds, for the model of a task, which has some megabytes


class Sources:
    """Engines of the page: those of a pool, and those of tasks; with the runs on them."""

    def __init__(
        self,
        pool: ModelPool,
        own: Mapping[str, EngineSource] | None = None,
        *,
        runs: Runs | None = None,
    ) -> None:
        self.pool = pool
        self.main = pool.main
        self.runs = runs or Runs()
        self._own = dict(own or {})

    def submit(
        self, job: Job, task: str, chosen: Choice | None = None, stop: StopFlag | None = None
    ) -> tuple[RunState, Generator[Any, None, None]]:
        """Return a new run of the client of this thread on the model of a task, and its steps.

        See `Runs.submit` for the steps and their errors. The log names known methods only.
        """
        run = self.runs.new(job.what, [name for name in job.methods if find_measured(name)], stop)
        return run, self.runs.submit(run, job, self.lease(task, chosen), current_caller())

    @contextmanager
    def lease(self, task: str, chosen: Choice | None = None) -> Iterator[EngineSource]:
        """Hold the engine source of a task until the block ends; tasks with their own model ignore `chosen`.

        None is the model of the host. Raises PineError if a model is missing or not allowed.
        """
        if name := TASKS[task].model:
            yield self._of_task(name)
            return
        with self.pool.lease(chosen or self.pool.host) as source:
            yield source

    def now(self, task: str, chosen: Choice | None = None) -> "pine.Engine | None":
        """Return the engine of a task, None if it is not loaded; a small one is waited for.

        Raises PineError if loading failed.
        """
        if name := TASKS[task].model:
            return self._of_task(name).wait(SMALL_MODEL_S)
        return self.pool.loaded(chosen or self.pool.host)

    def _of_task(self, name: str) -> EngineSource:
        """Return the started engine source of a model that tasks have of their own."""
        if name not in self._own:
            raise PineError(f"Model {name}, required for this task, is not available.")
        self._own[name].start()
        return self._own[name]
