"""Runs of browsers that leave: they go on, are found by their key alone, and are dropped in time."""

import threading
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import pytest

from pine_engine.errors import Cancelled, InputError
from pine_engine.scheduling.run_state import RunState, StopFlag
from pine_engine.scheduling.runs import Caller
from pine_engine.scheduling.turns import Client
from tests.support.api_server import wait_until
from viz.page.jobs import kept_runs
from viz.page.jobs.kept_runs import MAX_KEPT, YIELD_S, KeptRuns

KEY, OTHER = "0" * 32, "f" * 32
PAGE = Caller(Client("192.0.2.1", "session"))


@dataclass
class Work:
    """Steps that a test lets happen one by one."""

    steps: list[str] = field(default_factory=lambda: ["one", "two", "three"])
    failure: Exception | None = None
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    caller: Caller | None = None
    is_closed: bool = False

    def submit(self, caller: Caller) -> tuple[RunState, Generator[Any, None, None]]:
        self.caller = caller
        return RunState("test", (), StopFlag(), None, model="tiny"), self._run(caller)

    def _run(self, caller: Caller) -> Generator[str, None, None]:
        try:
            for step in self.steps:
                self.go.acquire()
                yield step
                caller.check()
            if self.failure:
                raise self.failure
        except Cancelled:
            return
        finally:
            self.is_closed = True

    def finish(self) -> None:
        for _ in self.steps:
            self.go.release()
        wait_until(lambda: self.is_closed)


def test_run_goes_on_without_its_page_and_is_found_by_its_key() -> None:
    kept, work = KeptRuns(), Work()
    _, steps = kept.start(KEY, "press", work.submit, PAGE)
    assert work.caller and not work.caller.is_listening()
    work.go.release()
    assert next(steps) == "one" and work.caller.is_listening()
    steps.close()
    assert not work.caller.is_listening() and not work.is_closed
    work.go.release()
    found = kept.find(KEY)
    assert found and found.press == "press" and kept.find(OTHER) is None
    wait_until(lambda: found._newest == "two")
    back = found.follow(PAGE)
    assert next(back) == "two"
    work.finish()
    assert list(back)[-1:] == ["three"]
    assert list(found.follow(PAGE)) == ["three"], "and after a second reload"


def test_run_without_page_yields_while_others_wait(clock: list[float]) -> None:
    awaited = [False]
    kept, work, later = KeptRuns(lambda: awaited[0]), Work(), Work()
    _, steps = kept.start(KEY, None, work.submit, PAGE)
    work.go.release()
    assert next(steps) == "one"
    awaited[0] = True
    clock[0] += YIELD_S + 1
    work.go.release()
    assert next(steps) == "two", "a run with a page goes on"
    steps.close()
    clock[0] += 1
    kept.start(OTHER, None, later.submit, PAGE)
    clock[0] += YIELD_S + 1
    later.go.release()
    found, other = kept.find(KEY), kept.find(OTHER)
    assert found and other
    wait_until(lambda: other._newest == "one")
    assert not later.is_closed, "one run gives up its place for one that waits"
    work.go.release()
    wait_until(lambda: work.is_closed)
    assert list(found.follow(PAGE)) == ["three"], "what it has computed is kept"
    assert found.state.end and found.state.end.reason == "disconnected" and found.state.end.sentence
    later.go.release()
    wait_until(lambda: later.is_closed)


@pytest.mark.parametrize(("others", "shown"), [(0, ["two", "three"]), (1, ["three"])])
def test_pages_of_several_runs_share_the_rate_of_updates(
    others: int, shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_runs, "UPDATE_S", 60.0)
    kept, work, other = KeptRuns(), Work(), Work()
    if others:
        _, of_other = kept.start(OTHER, None, other.submit, PAGE)
        other.go.release()
        assert next(of_other) == "one"
    _, steps = kept.start(KEY, None, work.submit, PAGE)
    work.go.release()
    assert next(steps) == "one"
    found: list[str] = []
    page = threading.Thread(target=lambda: found.extend(steps))
    page.start()
    work.go.release()
    run = kept.find(KEY)
    assert run
    wait_until(lambda: run._newest == "two" and (others == 1 or found == ["two"]))
    work.finish()
    page.join(10)
    assert found == shown, "the end is shown at once"


@pytest.mark.parametrize("state", [{"model": ""}, {"is_follower": True}])
def test_run_without_place_yields_nothing(state: dict[str, Any], clock: list[float]) -> None:
    kept, work = KeptRuns(lambda: True), Work()
    current, _ = kept.start(KEY, None, work.submit, PAGE)
    vars(current).update(state)
    clock[0] += YIELD_S + 1
    work.go.release()
    found = kept.find(KEY)
    assert found
    wait_until(lambda: found._newest == "one")
    work.finish()
    assert current.end is None


def test_failure_is_raised_after_the_page_came_back() -> None:
    kept, work = KeptRuns(), Work(failure=InputError("No question."))
    kept.start(KEY, None, work.submit, PAGE)
    work.finish()
    found = kept.find(KEY)
    assert found
    with pytest.raises(InputError):
        list(found.follow(PAGE))


def test_run_is_dropped_after_its_time_for_a_new_run_and_beyond_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kept_runs, "KEPT_S", 0.1)
    kept, work = KeptRuns(), Work()
    kept.start(KEY, None, work.submit, PAGE)
    time.sleep(0.2)
    work.go.release()
    wait_until(lambda: work.is_closed and kept.find(KEY) is None)

    monkeypatch.setattr(kept_runs, "KEPT_S", 600.0)
    runs = [Work() for _ in range(MAX_KEPT + 2)]
    for number, run in enumerate(runs):
        kept.start(f"{max(0, number - 1):032x}", None, run.submit, PAGE)
    assert kept.find(f"{0:032x}") is None, "the oldest of too many"
    for run in runs[:2]:
        run.go.release()
        wait_until(lambda run=run: run.is_closed)
    for run in runs[2:]:
        run.finish()


@pytest.mark.parametrize(
    ("key", "caller"), [("", PAGE), ("0" * 31, PAGE), (KEY, Caller(Client("192.0.2.1")))]
)
def test_run_without_key_or_page_ends_with_its_caller(key: str, caller: Caller) -> None:
    kept, work = KeptRuns(), Work()
    _, steps = kept.start(key, None, work.submit, caller)
    work.go.release()
    next(steps)
    steps.close()
    assert work.caller is caller and work.is_closed and kept.find(key) is None
