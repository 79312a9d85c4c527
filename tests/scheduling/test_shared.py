"""Equal requests that are active at the same time: computed once, and left one by one."""

import gc
import json
import math
import threading
import time
import traceback
import weakref
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from pine_engine.errors import InputError
from pine_engine.scheduling import shared
from pine_engine.scheduling.job import Job, PreparedJob
from pine_engine.scheduling.queue import FairQueue
from pine_engine.scheduling.run_state import End, RunState
from pine_engine.scheduling.runs import Runs
from pine_engine.scheduling.shared import SharedRun
from pine_engine.scheduling.work import planned
from tests.support.fake_jobs import LOADED, FakeModel, start
from tests.support.tiers import first_daily

Work = Callable[..., Generator[Any, None, None]]


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every subscriber have all views at once."""
    monkeypatch.setattr(shared, "MAX_VIEWS_PER_S", math.inf)


@pytest.fixture
def runs() -> Runs:
    return Runs(FairQueue(20))


@pytest.fixture
def calls() -> Counter[str]:
    """Return the number of times that the work of `count_up` began and ended."""
    return Counter()


@pytest.fixture
def count_up(calls: Counter[str]) -> Work:
    def count_up(_: Any, *, to: int, error: Exception | None = None) -> Generator[Any, None, None]:
        calls["begun"] += 1
        try:
            for number in range(1, to + 1):
                yield SimpleNamespace(number=number, is_complete=number == to and not error)
            if error:
                raise error
        finally:
            calls["ended"] += 1

    return count_up


def numbers(views: Generator[Any, None, None]) -> list[int]:
    return [view.number for view in views]


def test_followers_get_newest_view_and_all_results(
    runs: Runs, count_up: Work, calls: Counter[str], caplog: pytest.LogCaptureFixture
) -> None:
    _, first = start(runs, count_up, to=5)
    assert [next(first).number, next(first).number] == [1, 2]
    _, second = start(runs, count_up, to=5)
    assert next(second).number == 2
    assert next(second).number == 3 == next(first).number, "a view is computed once"
    assert numbers(first) == [4, 5]
    assert numbers(second) == [5], "it skips a view, but not the last one"
    assert calls == {"begun": 1, "ended": 1}
    lines = [json.loads(record.getMessage()) for record in caplog.records]
    assert [(line["outcome"], line["shared"]) for line in lines] == [("done", False), ("done", True)]


def test_many_threads_share_one_run(runs: Runs, count_up: Work, calls: Counter[str]) -> None:
    queue, last = runs.queue, []

    def work(engine: Any) -> Generator[Any, None, None]:
        while sum(ticket.is_follower for ticket in queue._tickets) < 11:
            time.sleep(0.001)
        yield from count_up(engine, to=200)

    def visit() -> None:
        *_, view = start(runs, work)[1]
        last.append(view)

    threads = [threading.Thread(target=visit) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(last) == 12 and len(set(map(id, last))) == 1 and last[0].number == 200
    assert calls == {"begun": 1, "ended": 1} and runs.outcomes == {"done": 12}


def test_equal_requests_that_start_together_are_computed_once(count_up: Work, calls: Counter[str]) -> None:
    runs = Runs(FairQueue(20, max_active=2, free_memory=lambda: 1e12))
    later: list[Generator[Any, None, None]] = []

    def prepare(_: Any) -> PreparedJob[Any]:
        if later:
            assert next(later.pop()).number == 1  # it starts while the first one is prepared
        return PreparedJob(planned(tokens=1, methods=1, bytes_at_once=1), partial(count_up, to=3))

    job = Job("compare", ["pine"], prepare)
    first, second = (runs.submit(runs.new("compare"), job, nullcontext(LOADED)) for _ in range(2))
    later.append(second)
    assert numbers(first) == [1, 2, 3] and numbers(second) == [3]
    assert calls == {"begun": 1, "ended": 1} and runs.outcomes == {"done": 2}


def test_views_per_second_are_limited(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "MAX_VIEWS_PER_S", 10)  # 0.2 s between views of each

    def work(_: Any) -> Generator[Any, None, None]:
        for number in range(1, 31):
            time.sleep(0.01)
            yield SimpleNamespace(number=number)

    first, second = (start(runs, work)[1] for _ in range(2))
    next(first)
    began = time.monotonic()
    views = numbers(second)
    max_views = 2 + (time.monotonic() - began) / 0.2  # the first and the last are not limited
    assert views[-1] == 30 and len(views) <= max_views
    assert numbers(first) == [30]


@pytest.mark.parametrize("leaving", first_daily([0, 1]), ids=["starter", "follower"])
@pytest.mark.parametrize("how", ["stop", "close"])
def test_run_ends_when_its_last_subscriber_leaves(
    leaving: int, how: str, runs: Runs, count_up: Work, calls: Counter[str]
) -> None:
    waiting: list[int] = []

    def work(engine: Any) -> Generator[Any, None, None]:
        try:
            yield from count_up(engine, to=9)
        finally:
            waiting.append(runs.queue.waiting)

    def leave(run: RunState, views: Generator[Any, None, None]) -> None:
        if how == "close":
            views.close()
            assert run.end == End("disconnected")
            return
        run.stop.requested = True
        assert list(views) == [] and run.end and run.end.reason == "stopped"

    both = [start(runs, work) for _ in range(2)]
    for _, views in both:
        next(views)
    other = start(runs, count_up, to=4)[1]
    assert next(other) == "Queued: 1 run ahead of you."
    leave(*both.pop(leaving))
    assert next(both[0][1]).number == 2 and calls == {"begun": 1}
    assert next(other).startswith("Queued: 1 run ahead of you"), "the next run begins after the last follower"
    leave(*both[0])
    assert calls == {"begun": 1, "ended": 1}
    assert waiting == [1], "the model stops before the next run can start"
    assert numbers(other) == [1, 2, 3, 4]


def test_failure_reaches_every_subscriber(runs: Runs, count_up: Work, calls: Counter[str]) -> None:
    error = InputError("the rows are torn")
    both = [start(runs, count_up, to=2, error=error) for _ in range(2)]
    for _, views in both:
        next(views)
    for run, views in both:
        assert next(views).number == 2
        with pytest.raises(InputError, match="the rows are torn"):
            next(views)
        assert run.end == End("rejected")
    assert runs.outcomes == {"rejected": 2} and calls["begun"] == 1


class TornError(Exception):
    """Exception that `copy` cannot copy."""

    def __init__(self, *, line: int) -> None:
        super().__init__(f"line {line}")
        self.line = line


def test_each_subscriber_raises_an_exception_of_its_own() -> None:
    def fail() -> Generator[Any, None, None]:
        yield SimpleNamespace()
        raise TornError(line=3)

    run = SharedRun("request", fail())
    assert run.subscribe("request")
    raised = []
    for _ in range(2):
        with pytest.raises(TornError, match="line 3", check=lambda error: error.line == 3) as caught:
            list(run.views())
        raised.append(caught.value)
    assert raised[0] is not raised[1] and raised[0].__cause__ is raised[1].__cause__ is not None
    depths = [len(traceback.extract_tb(error.__traceback__)) for error in raised]
    assert depths[0] == depths[1]


def test_failed_run_needs_no_garbage_collection(runs: Runs) -> None:
    alive = weakref.WeakSet[threading.Event]()

    def work(_: Any) -> Generator[Any, None, None]:
        tensor = threading.Event()  # any object
        alive.add(tensor)
        yield SimpleNamespace()
        raise InputError("the rows are torn")

    gc.collect()
    gc.disable()
    try:
        with pytest.raises(InputError):
            list(start(runs, work)[1])
        assert not alive
    finally:
        gc.enable()


def test_complete_run_is_not_reused(runs: Runs, count_up: Work, calls: Counter[str]) -> None:
    _, first = start(runs, count_up, to=2)
    assert [next(first).number, next(first).number] == [1, 2]
    _, second = start(runs, count_up, to=2)
    assert next(second) == "Queued: 1 run ahead of you."
    assert numbers(first) == []
    assert numbers(second) == [1, 2] and calls["begun"] == 2


@pytest.mark.parametrize("what", ["argument", "work", "model", "off"])
def test_other_requests_are_computed_alone(
    what: str, runs: Runs, count_up: Work, calls: Counter[str]
) -> None:
    def count_too(engine: Any, *, to: int) -> Generator[Any, None, None]:
        return count_up(engine, to=to)

    if what == "off":
        runs = Runs(FairQueue(20), shares_equal_runs=False)
    _, first = start(runs, count_up, to=3)
    next(first)
    model = FakeModel() if what == "model" else LOADED
    work = count_too if what == "work" else count_up
    _, second = start(runs, work, model, to=4 if what == "argument" else 3)
    assert next(second) == "Queued: 1 run ahead of you."
    assert numbers(first) == [2, 3]
    assert len(list(second)) >= 3 and calls["begun"] == 2


def test_waiting_requests_follow_when_one_of_them_starts(
    runs: Runs, count_up: Work, calls: Counter[str]
) -> None:
    _, other = start(runs, count_up, to=1)
    next(other)
    both = [start(runs, count_up, to=3)[1] for _ in range(2)]
    assert [next(views)[:9] for views in both] == ["Queued: 1", "Queued: 2"]
    assert numbers(other) == []
    assert [next(views).number for views in both] == [1, 1]
    assert numbers(both[0]) == [2, 3] and calls["begun"] == 2


def test_time_limit_counts_from_start_of_computation(count_up: Work, clock: list[float]) -> None:
    runs = Runs(FairQueue(20), max_seconds=1)
    _, first = start(runs, count_up, to=3)
    next(first)
    clock[0] += 2
    late, second = start(runs, count_up, to=3)
    assert numbers(second) == [1] and late.end and late.end.reason == "timeout"
