"""Registry of engines: that of the host, those of tasks, and selected ones."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pine_engine as pine
from pine_engine.errors import PineError
from pine_engine.prompts.tasks import TASKS
from pine_engine.server.fair_queue import FairQueue
from viz.page.jobs.loading import EngineSource
from viz.page.jobs.model_pool import Choice, ModelPool
from viz.page.jobs.run_log import RunLog
from viz.page.jobs.shared_runs import SharedRuns

SMALL_MODEL_S = 20.0  # maximum wait, in seconds, for the model of a task, which has some megabytes


class Sources:
    """Engines of the page: those of a pool, and those of tasks; with the queue and the log of runs.

    With `share_equal_runs`, requests that equal an active one follow it.
    """

    def __init__(
        self,
        pool: ModelPool,
        own: Mapping[str, EngineSource] | None = None,
        *,
        queue: FairQueue | None = None,
        runs: RunLog | None = None,
        share_equal_runs: bool = True,
    ) -> None:
        self.pool = pool
        self.main = pool.main
        self.queue = queue or FairQueue(most=0)
        self.shared_runs = SharedRuns(self.queue, is_enabled=share_equal_runs)
        self.runs = runs or RunLog()
        self._own = dict(own or {})

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
