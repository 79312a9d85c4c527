"""The line in front of the model: who waits, what he is told, and that he may leave it."""

import re
import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack

import pytest

from pine_engine.engine import Engine
from pine_engine.errors import PineError
from tests.running import one_run
from tests.tokenizers import letter_tokenizer
from viz.page.line import Line
from viz.page.running import run_with_engine
from viz.page.runs import StopFlag
from viz.page.source import EngineSource


@pytest.fixture(scope="module")
def source(tiny_llama: Callable) -> EngineSource:
    engine = Engine(tiny_llama(max_context=64), letter_tokenizer(), name="tiny")
    source = EngineSource(lambda: engine, "tiny")
    source.start()
    assert source.wait(60) is engine
    return source


def views(
    source: EngineSource, line: Line, stop: StopFlag, words: tuple[str, ...] = ("a", "b")
) -> Generator[str, None, None]:
    """A run that says these words, of which the last is not followed by anything."""

    def work(_: Engine) -> Generator[str, None, None]:
        yield from words

    return run_with_engine(
        source,
        work,
        **one_run(stop, line=line),
        say=str,
        fail=lambda text: f"failed: {text}",
        stopped=str,
    )


def test_they_get_the_model_in_the_order_in_which_they_came(source: EngineSource) -> None:
    line = Line(2)
    first, second, third = (views(source, line, StopFlag()) for _ in range(3))
    assert next(first) == "a"
    assert next(second) == "Waiting for the model: 1 run before yours."
    assert next(third) == "Waiting for the model: 2 runs before yours."
    assert list(first) == ["b"]
    assert re.fullmatch(r"Waiting for the model: 1 run before yours, about \d+ s\.", next(third))
    assert list(second) == ["a", "b"] and list(third) == ["a", "b"]


@pytest.mark.parametrize("how", ["stop", "close"])
def test_whoever_waits_may_leave(how: str, source: EngineSource) -> None:
    line, stop = Line(2), StopFlag()
    first, second, third = (
        views(source, line, StopFlag()),
        views(source, line, stop),
        views(source, line, StopFlag()),
    )
    next(first), next(second), next(third)
    if how == "stop":
        stop.requested = True
        assert list(second) == ["Stopped."]
    second.close()
    assert next(third).startswith("Waiting for the model: 1 run before")
    first.close()
    assert list(third) == ["a", "b"]


def test_a_full_line_says_so_and_has_room_again_later(source: EngineSource) -> None:
    line = Line(1)
    with ExitStack() as there:
        for _ in range(2):
            there.enter_context(line.join())
        (said,) = views(source, line, StopFlag())
        assert (
            said.startswith("failed: The line for the model is full: 1 wait already")
            and "What you typed is kept" in said
        )
        with pytest.raises(PineError):
            there.enter_context(line.join())
    assert list(views(source, line, StopFlag())) == ["a", "b"]


def test_one_runs_at_a_time_and_nobody_is_forgotten() -> None:
    line, inside, most, turns = Line(50), [0], [0], []

    def visit(number: int) -> None:
        with line.join() as place:
            while place.wait(0.01):
                pass
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            turns.append(number)
            inside[0] -= 1

    threads = [threading.Thread(target=visit, args=(number,)) for number in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert most == [1] and sorted(turns) == list(range(40))
