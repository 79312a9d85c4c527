"""Registry of engines: that of the host, those of tasks, and selected ones."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pine_engine as pine
from pine_engine.errors import PineError
from pine_engine.prompts.tasks import TASKS
from pine_engine.server.fair_queue import FairQueue
from viz.page.jobs.loading import EngineSource, Status
from viz.page.jobs.model_pool import Choice, ModelPool
from viz.page.jobs.run_log import RunLog
from viz.page.jobs.shared_runs import SharedRuns

SMALL_MODEL_S = 20.0  # maximum wait, in seconds, for the model of a task, which has some megabytes


class Sources:
    """Engines of the page by task, with the queue, the log of runs and the pool of selectable models.

    With `share_equal_runs`, requests that equal an active one follow it.
    """

    def __init__(
        self,
        main: EngineSource,
        own: Mapping[str, EngineSource] | None = None,
        *,
        queue: FairQueue | None = None,
        runs: RunLog | None = None,
        pool: ModelPool | None = None,
        share_equal_runs: bool = True,
    ) -> None:
        self.main = main
        self.queue = queue or FairQueue(most=0)
        self.shared_runs = SharedRuns(self.queue, is_enabled=share_equal_runs)
        self.runs = runs or RunLog()
        self.pool = pool
        self._own = dict(own or {})

    @contextmanager
    def lease(self, task: str, chosen: Choice | None = None) -> Iterator[EngineSource]:
        """Hold the engine source of a task until the block ends; tasks with their own model ignore `chosen`.

        Raises PineError as `of` does.
        """
        if chosen is None or self.pool is None or TASKS[task].model:
            yield self.of(task)
            return
        with self.pool.lease(chosen) as source:
            yield source

    def status(self, chosen: Choice | None) -> Status:
        """Return the status of the selected model."""
        if chosen is None or self.pool is None:
            return self.main.status
        return self.pool.status(chosen)

    def of(self, task: str) -> EngineSource:
        """Return the engine source of a task. Raises PineError if the model of the task is missing."""
        name = TASKS[task].model
        if not name:
            return self.main
        if name not in self._own:
            raise PineError(f"Model {name}, required for this task, is not available.")
        self._own[name].start()
        return self._own[name]

    def now(self, task: str, chosen: Choice | None = None) -> "pine.Engine | None":
        """Return the engine of a task, None if it is not loaded; a small one is waited for.

        Raises PineError if loading failed.
        """
        if chosen is not None and self.pool is not None and not TASKS[task].model:
            return self.pool.loaded(chosen)
        return self.of(task).wait(SMALL_MODEL_S if TASKS[task].model else 0)
