"""A call that must end before it is done answers with what it has, and says why."""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

import gradio as gr
import pytest

from pine_engine.engine.engine import Engine
from pine_engine.errors import InputError
from pine_engine.scheduling.runs import Runs
from pine_engine.scheduling.work import Work
from tests.support.fake_jobs import fake_job
from tests.support.running import sources_of
from viz.page.api.calls import answer_job
from viz.page.jobs.loader import EngineSource

NO_TIME = 1e-9  # seconds that are over at the first look


@dataclass(frozen=True)
class Counted:
    """State of these calls; 0 is nothing yet."""

    number: int
    is_complete: bool = False
    sentence: str = "counting"
    progress: tuple[int, int] = (0, 1)
    done: Work = field(default_factory=Work)

    def result(self) -> dict[str, Any] | None:
        return {"number": self.number} if self.number else None


def counted(_: Engine, to: int, of: int) -> Generator[Counted, None, None]:
    """Begins with nothing, and then counts; it is done at the last number."""
    yield Counted(0)
    for number in range(1, to + 1):
        yield Counted(number, number == of)


def request(
    source: EngineSource, work: Callable[..., Any], max_seconds: float | None = None, **values: int
) -> Any:
    sources = sources_of(source, runs=Runs(max_seconds=max_seconds))
    return answer_job(sources, fake_job(work, **values), Counted.result)


def test_call_returns_its_last_result(source: EngineSource) -> None:
    assert request(source, counted, to=3, of=3) == {"number": 3}


def test_complete_result_is_not_stopped_by_the_time_limit(
    source: EngineSource, caplog: pytest.LogCaptureFixture
) -> None:

    def at_once(engine: Engine) -> Generator[Counted, None, None]:
        yield Counted(1, is_complete=True)

    assert "stop_reason" not in request(source, at_once, NO_TIME)
    assert '"outcome": "done"' in caplog.text


def test_partial_result_has_the_reason_of_the_stop(
    source: EngineSource, caplog: pytest.LogCaptureFixture
) -> None:

    def began(engine: Engine) -> Generator[Counted, None, None]:
        yield Counted(1)
        pytest.fail("it went on")

    answer = request(source, began, NO_TIME)
    assert answer["number"] == 1 and "1e-09 s" in answer["stop_reason"]
    assert '"outcome": "timeout"' in caplog.text


def test_without_a_result_the_reason_is_raised(source: EngineSource) -> None:
    with pytest.raises(gr.Error, match="1e-09 s"):
        request(source, counted, NO_TIME, to=3, of=3)


def test_failure_is_raised_after_partial_results(
    source: EngineSource, caplog: pytest.LogCaptureFixture
) -> None:

    def failing(engine: Engine) -> Generator[Counted, None, None]:
        yield from counted(engine, to=1, of=2)
        raise InputError("the rows are torn; mend them")

    with pytest.raises(gr.Error, match="The rows are torn; mend them"):
        request(source, failing)
    assert '"outcome": "rejected"' in caplog.text
