"""Which engine answers: the one that the page was started with, a task's own, or one that a visitor chose."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pine_engine.errors import PineError
from pine_engine.prompts.tasks import get_task
from viz.page.jobs.loading import EngineSource, Status
from viz.page.jobs.model_pool import Choice, ModelPool
from viz.page.jobs.queue import FairQueue
from viz.page.jobs.run_log import RunLog

if TYPE_CHECKING:  # importing the engine imports torch, which would keep the page waiting
    from pine_engine.engine.engine import Engine

SMALL_MODEL_S = 20.0
"""Longest wait, in seconds, for a model of some megabytes; a busy machine takes a few."""


class Sources:
    """The engines of the page: the one it was started with, and those of tasks with a model of their own.

    own: by the name that Task.model gives; each is loaded when it is first needed. queue: before them all.
    runs: of all of them. pool: of models that visitors may choose; none if None.
    """

    def __init__(
        self,
        main: EngineSource,
        own: Mapping[str, EngineSource] | None = None,
        *,
        queue: FairQueue | None = None,
        runs: RunLog | None = None,
        pool: ModelPool | None = None,
    ) -> None:
        self.main = main
        self.queue = queue or FairQueue(most=0)
        self.runs = runs or RunLog()
        self.pool = pool
        self._own = dict(own or {})

    @contextmanager
    def lease(self, task: str, chosen: Choice | None = None) -> Iterator[EngineSource]:
        """The source that answers a task for a visitor, whose model stays until the block is left.

        chosen: by the visitor; None for the model that the page was started with. Tasks with a model of their
        own are answered by that. Raises PineError as `of` does.
        """
        if chosen is None or self.pool is None or get_task(task).model:
            yield self.of(task)
            return
        with self.pool.lease(chosen) as source:
            yield source

    def status(self, chosen: Choice | None) -> Status:
        """How far the model is that a visitor has chosen."""
        if chosen is None or self.pool is None:
            return self.main.status
        return self.pool.status(chosen)

    def of(self, task: str) -> EngineSource:
        """The source that answers a task. Raises PineError for a model that the page was started without."""
        name = get_task(task).model
        if not name:
            return self.main
        if name not in self._own:
            raise PineError(f"The model {name}, which answers this kind of question, is not there.")
        self._own[name].start()
        return self._own[name]

    def now(self, task: str, chosen: Choice | None = None) -> "Engine | None":
        """The engine that answers a task, None if it is not there; a small one is waited for.

        chosen: see lease. Raises PineError if it could not be loaded.
        """
        if chosen is not None and self.pool is not None and not get_task(task).model:
            return self.pool.loaded(chosen)
        return self.of(task).wait(SMALL_MODEL_S if get_task(task).model else 0)
