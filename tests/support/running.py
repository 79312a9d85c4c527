"""Runs of the page's jobs, as its buttons begin them."""

import json
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from itertools import groupby
from typing import Any

import pytest

from pine_engine.server.fair_queue import FairQueue
from viz.page.jobs.cost import Work
from viz.page.jobs.job_bar import run_on_model
from viz.page.jobs.loading import EngineSource
from viz.page.jobs.model_pool import Choice, ModelPool
from viz.page.jobs.run_log import LoggedRun, RunLog, StopFlag
from viz.page.jobs.sources import Sources


def new_views(views: Iterable[Any]) -> list[Any]:
    """Return the views that differ from the view before, which update the panel."""
    return [view for view, _ in groupby(views)]


def logged(caplog: pytest.LogCaptureFixture) -> dict[str, Any]:
    """Return the one line of log that was written for a run."""
    (record,) = [one for one in caplog.records if one.name == "pine_explorer.runs"]
    line: dict[str, Any] = json.loads(record.getMessage())
    return line


def one_run(
    stop: StopFlag | None = None, *, max_seconds: float | None = None, queue: FairQueue | None = None
) -> dict[str, Any]:
    """Return the arguments of `run_views` for a new run. stop: flag of the user."""
    runs = RunLog(max_seconds)
    return {"queue": queue or FairQueue(0), "runs": runs, "run": runs.new("compare", ["pine"], stop)}


def run_views(
    source: EngineSource | Callable[[], AbstractContextManager[EngineSource]],
    work: Callable[..., Any],
    *,
    queue: FairQueue,
    runs: RunLog,
    run: LoggedRun,
) -> Generator[Any, None, None]:
    """Yield the views and messages of a run, and at the end the reason why it failed or ended.

    source: model, or a function that leases it.
    """
    main = source if isinstance(source, EngineSource) else EngineSource(_unloaded, "none")
    lease = (lambda: nullcontext(source)) if isinstance(source, EngineSource) else source
    sources = sources_of(main, queue=queue, runs=runs)
    yield from run_on_model(sources, run, lease(), work, unplanned, {})
    if run.failure:
        yield f"failed: {run.failure}"
    elif run.why:
        yield run.why


def sources_of(main: EngineSource, own: Mapping[str, EngineSource] | None = None, **options: Any) -> Sources:
    """Return the engines of a page whose model is `main`."""
    pool = ModelPool(Choice("main", "float32"), main, load=lambda *_: pytest.fail("no other model is needed"))
    return Sources(pool, own, **options)


def _unloaded() -> Any:
    raise AssertionError("the model is the one that is leased")


def unplanned(*_: Any, **arguments: Any) -> Work:
    """Return work of unknown size: the run is alone."""
    return Work()
