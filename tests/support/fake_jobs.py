"""Jobs without a model, for tests of queue and runs."""

from collections.abc import Callable, Generator
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

from pine_engine.scheduling.job import Job, PreparedJob
from pine_engine.scheduling.run_state import RunState, StopFlag
from pine_engine.scheduling.runs import Caller, Runs
from pine_engine.scheduling.work import Work

Views = Generator[Any, None, None]

TINY = SimpleNamespace(model_name="tiny")


@dataclass(eq=False)
class FakeModel:
    """Model of the host; it is loading while `engine` is None."""

    engine: Any = field(default_factory=lambda: TINY)
    for_all: bool = True
    sentence: str = "Loading tiny"

    def wait(self, seconds: float) -> Any:
        return self.engine


LOADED = FakeModel()


def fake_job(work: Callable[..., Any], **arguments: Any) -> Job:
    """Return a job with the views of `work`. num_bytes: its size; without one, its run is alone."""
    return Job("compare", ["pine"], _prepare, {"work": work, **arguments})


def _prepare(_: Any, *, work: Callable[..., Any], num_bytes: float = 0, **arguments: Any) -> PreparedJob[Any]:
    return PreparedJob(Work(bytes_at_once=num_bytes), partial(work, **arguments))


def start(
    runs: Runs,
    work: Callable[..., Any],
    model: FakeModel = LOADED,
    *,
    stop: StopFlag | None = None,
    **arguments: Any,
) -> tuple[RunState, Views]:
    """Return a run of `fake_job`, and its steps, which do not wait."""
    run = runs.new("compare", ["pine"], stop)
    return run, runs.submit(run, fake_job(work, **arguments), nullcontext(model), Caller(check_s=0))
