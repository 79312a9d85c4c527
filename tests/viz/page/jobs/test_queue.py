"""Queue for the model: order, messages, and leaving."""

import threading
from collections.abc import Generator, Iterable
from typing import Any

import pytest

from pine_engine.engine.engine import Engine
from pine_engine.scheduling.queue import FairQueue
from pine_engine.scheduling.runs import Job, Runs, StopFlag
from tests.support.running import one_run, run_views, sources_of
from tests.support.runs import form_of
from viz.page.answers.answering import prepare_answers
from viz.page.answers.run import Shown
from viz.page.jobs.loader import EngineSource


def views(
    source: EngineSource, queue: FairQueue, stop: StopFlag, words: tuple[str, ...] = ("a", "b")
) -> Generator[str, None, None]:
    """A run that says these words, of which the last is not followed by anything."""

    def work(_: Engine) -> Generator[str, None, None]:
        yield from words

    return run_views(source, work, **one_run(stop, queue=queue))


@pytest.mark.parametrize("how", ["stop", "close"])
def test_waiting_run_can_leave(how: str, source: EngineSource) -> None:
    queue, stop = FairQueue(2), StopFlag()
    first, second, third = (
        views(source, queue, StopFlag()),
        views(source, queue, stop),
        views(source, queue, StopFlag()),
    )
    next(first), next(second), next(third)
    if how == "stop":
        stop.requested = True
        assert list(second) == ["Stopped."]
    second.close()
    assert next(third).startswith("Queued: 1 run ahead")
    first.close()
    assert list(third) == ["a", "b"]


def test_runs_of_two_clients_are_computed_together(source: EngineSource) -> None:
    sources = sources_of(source, runs=Runs(FairQueue(4, max_active=2, free_memory=lambda: 1e9)))

    def start(question: str) -> Generator[Any, None, None]:
        job = Job("compare", ["pine"], prepare_answers, {"form": form_of(question=question)})
        return sources.submit(job, "retrieval_qa")[1]

    def answers(views: Iterable[Any]) -> list[tuple[str, tuple[float, ...]]]:
        *_, last = views
        return [(one.text, one.logprobs) for one in last.run.result.answers.values()]

    questions = ("Which is green?", "Which is red, and why?")
    alone = [answers(start(question)) for question in questions]
    first, second, third = map(start, (*questions, "Which is white?"))
    begun, sentence = next(first), next(second)
    assert isinstance(begun, Shown) and sentence.startswith("Started.")
    assert next(third).startswith("Queued: 2 runs ahead of you")
    assert [answers(second), answers([begun, *first])] == alone[::-1]
    assert answers(third) not in alone


def test_runs_that_waited_for_the_model_are_computed_together(engine: Engine) -> None:
    loading = threading.Event()

    def load() -> Engine:
        loading.wait(30)
        return engine

    source = EngineSource(load, "tiny")
    source.start()
    sources = sources_of(source, runs=Runs(FairQueue(4, max_active=2, free_memory=lambda: 1e9)))
    started = []
    for question in ("Which is green?", "Which is red?"):
        job = Job("compare", ["pine"], prepare_answers, {"form": form_of(question=question)})
        started.append(sources.submit(job, "retrieval_qa")[1])
    assert [str(next(run))[:9] for run in started] == ["Loading t", "Queued: 1"]
    loading.set()
    views = [
        next(view for view in run if not str(view).startswith(("Loading", "Started"))) for run in started
    ]
    assert all(isinstance(view, Shown) for view in views)
