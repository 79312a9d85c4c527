"""Runs of the page's jobs, as its buttons begin them."""

import json
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from itertools import groupby
from typing import Any, TypeVar

import pytest

from pine_engine.backend import Backend
from pine_engine.scheduling.job import Job, PreparedJob
from pine_engine.scheduling.run_state import RunState, StopFlag
from pine_engine.scheduling.runs import Runs
from tests.support.fake_jobs import fake_job
from viz.page.common.failures import explain
from viz.page.jobs.connection_tracker import current_caller
from viz.page.jobs.loader import EngineSource
from viz.page.jobs.sources import Choice, Sources

View = TypeVar("View")


def new_views(views: Iterable[Any]) -> list[Any]:
    """Return the views that differ from the view before, which update the panel."""
    return [view for view, _ in groupby(views)]


def views_of(
    prepare: Callable[..., PreparedJob[View]], engine: Backend, *arguments: Any, **options: Any
) -> Generator[View, None, None]:
    """Prepare a job, and yield its views."""
    yield from prepare(engine, *arguments, **options).views(engine)


def logged(caplog: pytest.LogCaptureFixture) -> dict[str, Any]:
    """Return the one line of log that was written for a run."""
    (record,) = [one for one in caplog.records if one.name == "pine_explorer.runs"]
    line: dict[str, Any] = json.loads(record.getMessage())
    return line


def one_run(stop: StopFlag | None = None) -> dict[str, Any]:
    """Return the arguments of `run_views` for a new run. stop: flag of the user."""
    runs = Runs()
    return {"runs": runs, "run": runs.new("compare", ["pine"], stop)}


def run_views(
    source: EngineSource | Callable[[], AbstractContextManager[EngineSource]],
    work: Callable[..., Any] | Job,
    *,
    runs: Runs,
    run: RunState,
) -> Generator[Any, None, None]:
    """Yield the views and messages of a run, and at the end the reason why it failed or ended.

    source: model, or a function that leases it.
    """
    lease = nullcontext(source) if isinstance(source, EngineSource) else source()
    job = work if isinstance(work, Job) else fake_job(work)
    try:
        yield from runs.submit(run, job, lease, current_caller())
    except Exception as error:
        yield f"failed: {explain(error)}"
        return
    if run.end and run.end.sentence:
        yield run.end.sentence


def loaded_source(backend: Backend, name: str = "tiny") -> EngineSource:
    """Return a source that has loaded a backend."""
    source = EngineSource(lambda: backend, name)
    source.start()
    assert source.wait(60) is backend
    return source


def sources_of(main: EngineSource, own: Mapping[str, EngineSource] | None = None, **options: Any) -> Sources:
    """Return the engines of a page whose model is `main`."""
    return Sources(Choice("main", "float32"), main, own, **options)
