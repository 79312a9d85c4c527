"""A call that must end before it is done answers with what it has, and says why."""

import logging
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

import gradio as gr
import pytest

from pine_engine.engine.engine import Engine
from pine_engine.errors import InputError
from tests.support.tokenizers import letter_tokenizer
from viz.page.api.calls import _answer
from viz.page.api.works import CallView
from viz.page.jobs.cost import Work
from viz.page.jobs.loading import EngineSource
from viz.page.jobs.run_log import RunLog
from viz.page.jobs.sources import Sources

NO_TIME = 1e-9
"""Seconds that are over at the first look."""


@pytest.fixture(scope="module")
def source(tiny_llama: Callable[..., Any]) -> EngineSource:
    engine = Engine(tiny_llama(max_context_length=64), letter_tokenizer(), name="tiny")
    source = EngineSource(lambda: engine, "tiny")
    source.start()
    assert source.wait(60) is engine
    return source


def counted(_: Engine, to: int, of: int) -> Generator[CallView, None, None]:
    """Begins with nothing, and then counts; it is done at the last number."""
    yield CallView(Work())
    for number in range(1, to + 1):
        yield CallView(Work(orders=number), partial(dict, number=number), number == of)


def request(
    source: EngineSource, work: Callable[..., Any], max_seconds: float | None = None, **values: int
) -> Any:
    sources = Sources(source, runs=RunLog(max_seconds))
    return _answer(sources, "api count", ("pine",), work, lambda engine, **values: Work(), values)


def test_a_call_is_answered_with_its_last_word(source: EngineSource) -> None:
    assert request(source, counted, to=3, of=3) == {"number": 3}


def test_a_whole_answer_has_not_ended_early_even_if_the_time_is_over(
    source: EngineSource, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    def at_once(engine: Engine) -> Generator[CallView, None, None]:
        yield CallView(Work(), lambda: {"number": 1}, True)

    assert request(source, at_once, NO_TIME) == {"number": 1}
    assert '"outcome": "done"' in caplog.text


def test_what_was_there_when_the_time_was_over_is_answered_with_the_reason(
    source: EngineSource, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    def began(engine: Engine) -> Generator[CallView, None, None]:
        yield CallView(Work(), lambda: {"number": 1})
        pytest.fail("it went on")

    answer = request(source, began, NO_TIME)
    assert answer["number"] == 1 and answer["stop_reason"].startswith("The time limit of 1e-09 s was reached")
    assert '"outcome": "timeout"' in caplog.text


def test_with_nothing_to_answer_the_reason_is_the_answer(source: EngineSource) -> None:
    with pytest.raises(gr.Error, match="The time limit of 1e-09 s was reached"):
        request(source, counted, NO_TIME, to=3, of=3)


def test_a_failure_is_the_answer_whatever_came_before(
    source: EngineSource, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    def failing(engine: Engine) -> Generator[CallView, None, None]:
        yield from counted(engine, to=1, of=2)
        raise InputError("the rows are torn; mend them")

    with pytest.raises(gr.Error, match="The rows are torn; mend them"):
        request(source, failing)
    assert '"outcome": "rejected"' in caplog.text
