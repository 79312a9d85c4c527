"""All model computation runs in one worker thread."""

import os
import threading
from collections.abc import Generator, Iterable

import pytest
import torch

from pine_engine.engine import model_worker
from pine_engine.network.thread_tuner import torch_num_threads


def here(_: model_worker.RunControl | None = None) -> threading.Thread:
    return threading.current_thread()


def test_one_worker_runs_every_job() -> None:
    first = model_worker.run_in_worker(here)
    assert first is not threading.current_thread()
    streamed: Iterable[threading.Thread] = model_worker.stream_from_worker(lambda emit, _: emit(here()))
    assert {model_worker.run_in_worker(here), model_worker.compute_on("cpu", here), *streamed} == {first}
    assert (
        model_worker.run_in_worker(
            lambda _: [here(), model_worker.run_in_worker(here), model_worker.compute_on("cpu", here)]
        )
        == [first] * 3
    )
    assert model_worker.compute_on(torch.device("meta"), here) is threading.current_thread()


def test_second_worker_exists_only_while_first_is_busy() -> None:
    first, resume = model_worker.run_in_worker(here), threading.Event()

    def wait() -> None:
        resume.wait(10)

    finished = model_worker._workers.submit(wait)
    second = model_worker.run_in_worker(here)
    assert second is not first
    resume.set()
    assert finished.wait(10)
    (ended,) = [thread for thread in (first, second) if thread is not model_worker.run_in_worker(here)]
    ended.join(10)
    assert [thread.is_alive() for thread in (first, second)].count(True) == 1


def test_error_reaches_caller_and_worker_continues() -> None:
    def fail(_: model_worker.RunControl) -> None:
        raise LookupError("no such thing")

    before = model_worker.run_in_worker(here)
    with pytest.raises(LookupError, match="no such thing"):
        model_worker.run_in_worker(fail)
    assert model_worker.run_in_worker(here) is before


def test_interrupt_stops_work(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = threading.Event()

    def work(control: model_worker.RunControl) -> None:
        assert control.cancelled.wait(10)
        stopped.set()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pine_engine.engine.model_worker.Future.result", interrupt)
    with pytest.raises(KeyboardInterrupt):
        model_worker.run_in_worker(work)
    assert stopped.wait(10)


def test_worker_has_torch_threads_of_main_thread() -> None:
    for count in (1, 3, 2):
        with torch_num_threads(count):
            assert model_worker.run_in_worker(lambda _: torch.get_num_threads()) == count


def test_items_are_computed_when_requested() -> None:
    made: list[threading.Thread] = []

    def make() -> Generator[int, None, None]:
        for number in (1, 2, 3):
            made.append(here())
            yield number

    items = model_worker.iterate_in_worker(make())
    assert not made
    assert next(items) == 1
    items.close()
    assert made == [model_worker.run_in_worker(here)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="os.fork exists on POSIX systems only")
def test_fork_starts_own_worker() -> None:
    model_worker.run_in_worker(here)
    child = os.fork()
    if not child:
        os._exit(0 if model_worker.run_in_worker(lambda _: 7) == 7 else 1)
    assert os.waitpid(child, 0)[1] == 0
