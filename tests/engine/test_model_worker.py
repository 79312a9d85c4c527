"""All computing is one thread's, which lives on."""

import os
import threading
from collections.abc import Generator, Iterable

import pytest
import torch

from pine_engine.engine.model_worker import (
    begin,
    compute_on,
    iterate_in_worker,
    run_in_worker,
    stream_from_worker,
)
from pine_engine.network.thread_tuner import torch_num_threads


def here(_: threading.Event | None = None) -> threading.Thread:
    return threading.current_thread()


def test_one_thread_does_every_job_in_turn() -> None:
    first = run_in_worker(here)
    assert first is not threading.current_thread()
    told: Iterable[threading.Thread] = stream_from_worker(lambda emit, _: emit(here()))
    assert {run_in_worker(here), compute_on("cpu", here), *told} == {first}


def test_elsewhere_than_on_the_cpu_the_caller_computes() -> None:
    assert compute_on(torch.device("meta"), here) is threading.current_thread()


def test_a_job_of_a_model_thread_is_done_there() -> None:
    assert len(set(run_in_worker(lambda _: [here(), run_in_worker(here), compute_on("cpu", here)]))) == 1


def test_a_second_thread_is_there_only_while_the_first_is_busy() -> None:
    usual, goes_on = run_in_worker(here), threading.Event()

    def wait() -> None:
        goes_on.wait(10)

    over = begin(wait)
    other = run_in_worker(here)
    assert other is not usual
    goes_on.set()
    assert over.wait(10)
    one_ends = [thread for thread in (usual, other) if thread is not run_in_worker(here)]
    one_ends[0].join(10)
    assert [thread.is_alive() for thread in (usual, other)].count(True) == 1


def test_what_is_raised_reaches_the_caller_and_the_thread_lives_on() -> None:
    def fail(_: threading.Event) -> None:
        raise LookupError("no such thing")

    before = run_in_worker(here)
    with pytest.raises(LookupError, match="no such thing"):
        run_in_worker(fail)
    assert run_in_worker(here) is before


def test_who_is_interrupted_stops_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = threading.Event()

    def work(interrupted: threading.Event) -> None:
        assert interrupted.wait(10)
        stopped.set()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pine_engine.engine.model_worker.Future.result", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run_in_worker(work)
    assert stopped.wait(10)


def test_torch_has_as_many_threads_there_as_in_the_main_thread() -> None:
    for count in (1, 3, 2):
        with torch_num_threads(count):
            assert run_in_worker(lambda _: torch.get_num_threads()) == count
            told: Iterable[int] = stream_from_worker(lambda emit, _: emit(torch.get_num_threads()))
            assert list(told) == [count]


def test_items_are_computed_there_when_they_are_asked_for() -> None:
    made: list[threading.Thread] = []

    def make() -> Generator[int, None, None]:
        for number in (1, 2, 3):
            made.append(here())
            yield number

    items = iterate_in_worker(make())
    assert not made
    assert next(items) == 1
    items.close()
    assert made == [run_in_worker(here)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks are for POSIX systems")
def test_a_fork_has_a_thread_of_its_own() -> None:
    run_in_worker(here)
    child = os.fork()
    if not child:
        os._exit(0 if run_in_worker(lambda _: 7) == 7 else 1)
    assert os.waitpid(child, 0)[1] == 0
