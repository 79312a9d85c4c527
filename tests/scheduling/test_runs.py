"""Runs of a process: queue, time limit, stop, shutdown, counters and log."""

import threading
from collections.abc import Generator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest

from pine_engine.errors import InputError
from pine_engine.scheduling.queue import FairQueue
from pine_engine.scheduling.run_state import SHUTTING_DOWN, End, RunState, StopFlag
from pine_engine.scheduling.runs import Runs
from tests.support.fake_jobs import TINY, FakeModel, start
from tests.support.running import logged

SENTINEL = "xylophone"


def one_view(_: Any, name: str = "ran") -> Generator[str, None, None]:
    yield name


def two_views(_: Any) -> Generator[str, None, None]:
    yield from ("a", "b")


def endless(_: Any) -> Generator[int, None, None]:
    yield from range(1000)
    pytest.fail("it went on")


@pytest.mark.parametrize(
    ("error", "outcome", "counted"),
    [
        (InputError(f"document {SENTINEL} is empty"), "rejected", "rejected"),
        (ZeroDivisionError(SENTINEL), "failed: ZeroDivisionError", "failed"),
    ],
)
def test_failure_is_logged_by_its_class(
    error: Exception, outcome: str, counted: str, caplog: pytest.LogCaptureFixture
) -> None:
    def work(_: Any) -> Generator[str, None, None]:
        yield "began"
        raise error

    runs = Runs()
    run, views = start(runs, work)
    assert next(views) == "began"
    with pytest.raises(type(error)):
        next(views)
    assert logged(caplog)["outcome"] == outcome and SENTINEL not in caplog.text
    assert runs.outcomes == {counted: 1} and run.end and run.end.reason == counted


def test_run_of_disconnected_client_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    runs = Runs()
    _, views = start(runs, endless)
    next(views)
    assert runs.num_open == 1
    views.close()
    assert logged(caplog)["outcome"] == "disconnected" and runs.num_open == 0


@pytest.mark.parametrize("how", ["stop", "close"])
def test_waiting_run_can_leave(how: str) -> None:
    runs, stop = Runs(FairQueue(2)), StopFlag()
    _, first = start(runs, two_views)
    run, second = start(runs, one_view, stop=stop)
    _, third = start(runs, one_view, name="third")
    assert next(first) == "a" and next(second).startswith("Queued: 1 run ahead")
    assert next(third).startswith("Queued: 2 runs ahead")
    if how == "stop":
        stop.requested = True
        assert list(second) == [] and run.end == End("stopped", "Stopped.")
    second.close()
    assert next(third).startswith("Queued: 1 run ahead")
    first.close()
    assert list(third) == ["third"]


def queue_of_two() -> FairQueue:
    """Return a queue with two active runs."""
    return FairQueue(4, max_active=2, free_memory=lambda: 1e9)


def test_runs_of_known_size_are_active_together() -> None:
    runs = Runs(queue_of_two())
    first, second, third = (start(runs, one_view, name=name, num_bytes=1)[1] for name in "abc")
    assert next(first) == "a"
    assert next(second).startswith("Started.") and next(second) == "b"
    assert next(third).startswith("Queued: 2 runs ahead of you")
    assert list(first) == list(second) == [] and next(third) == "c"


def test_runs_that_waited_for_the_model_are_active_together() -> None:
    runs, model = Runs(queue_of_two()), FakeModel(engine=None)
    first, second = (start(runs, one_view, model, name=name, num_bytes=1)[1] for name in "ab")
    assert next(first) == "Loading tiny" and next(second).startswith("Queued: 1")
    model.engine = TINY
    assert [next(first), next(second), next(second)][::2] == ["a", "b"]


def test_run_on_another_model_loads_before_the_queue() -> None:
    runs, model = Runs(FairQueue(2)), FakeModel(engine=None, for_all=False)
    _, other = start(runs, one_view, model, name="other")
    assert next(other) == "Loading tiny"
    *_, last = start(runs, one_view)[1]
    assert last == "ran"


def test_run_beyond_time_limit_ends(clock: list[float], caplog: pytest.LogCaptureFixture) -> None:
    run, views = start(Runs(max_seconds=1), endless)
    assert next(views) == 0
    clock[0] += 2
    assert list(views) == [], "the last view was computed in time"
    assert run.end and run.end.sentence.startswith("Timeout: the run exceeded 1 s")
    assert logged(caplog)["outcome"] == "timeout"


@pytest.mark.parametrize("reason", [{"max_seconds": 0.0}, {"stop": StopFlag(requested=True)}], ids=str)
def test_run_with_all_results_is_done(reason: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    run: RunState

    def work(_: Any) -> Generator[Any, None, None]:
        yield SimpleNamespace(is_complete=False)
        vars(run).update(reason)
        yield SimpleNamespace(is_complete=True)
        yield SimpleNamespace(is_complete=True)  # such as the sentence at the end

    run, views = start(Runs(), work)
    assert [view.is_complete for view in views] == [False, True, True]
    assert logged(caplog)["outcome"] == "done"


def test_stop_before_the_queue_is_kept() -> None:
    runs, stop = Runs(), StopFlag(requested=True)  # of an earlier run
    run, views = start(runs, endless, stop=stop)
    assert not stop.requested
    stop.requested = True  # the page offers Stop before the run is in the queue
    assert list(views) == [] and run.end == End("stopped", "Stopped.") and runs.outcomes == {"stopped": 1}


def test_run_time_excludes_wait_for_model(clock: list[float]) -> None:
    model = FakeModel(engine=None)
    run, views = start(Runs(max_seconds=0.5), one_view, model)
    assert next(views) == "Loading tiny"
    clock[0] += 1
    model.engine = TINY
    assert list(views) == ["ran"] and run.end == End("done")


def test_shutdown_stops_runs_and_rejects_new_ones() -> None:
    runs = Runs()
    run, views = start(runs, endless)
    assert next(views) == 0
    assert runs.close(0.01) is False  # it goes on
    assert list(views) == [] and run.end == End("shutdown", SHUTTING_DOWN)
    assert runs.wait(0)
    late, views = start(runs, endless)
    assert list(views) == [] and late.end == End("shutdown", SHUTTING_DOWN)
    assert runs.outcomes == {"shutdown": 2}
    assert runs.close(0) is True


def test_shutdown_waits_for_run_that_ends() -> None:
    runs, closed = Runs(), list[bool]()
    _, views = start(runs, two_views)
    next(views)
    closer = threading.Thread(target=lambda: closed.append(runs.close(5)))
    closer.start()
    with closing(views):
        assert list(views) == ["b"]
    closer.join()
    assert closed == [True] and runs.outcomes == {"done": 1}
