"""The worker: one thread for all work, errors, interrupts, and forks."""

import os
import threading
import time
from collections.abc import Generator
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch

from pine_engine.network.thread_tuner import torch_num_threads
from pine_engine.scheduling import worker
from pine_engine.scheduling.scheduler import Coroutine, run_shared


def here() -> threading.Thread:
    return threading.current_thread()


def test_one_worker_runs_every_job() -> None:
    first = worker.run_in_worker(here)
    assert first is not threading.current_thread()
    assert {worker.run_in_worker(here), worker.compute_on("cpu", here)} == {first}
    assert (
        worker.run_in_worker(lambda: [here(), worker.run_in_worker(here), worker.compute_on("cpu", here)])
        == [first] * 3
    )
    assert worker.compute_on(torch.device("meta"), here) is threading.current_thread()


def test_second_worker_exists_only_while_first_is_busy() -> None:
    first, resume = worker.run_in_worker(here), threading.Event()

    def wait() -> None:
        resume.wait(10)

    finished = worker.workers.submit(wait)
    second = worker.run_in_worker(here)
    assert second is not first
    resume.set()
    assert finished.wait(10)
    (ended,) = [thread for thread in (first, second) if thread is not worker.run_in_worker(here)]
    ended.join(10)
    assert [thread.is_alive() for thread in (first, second)].count(True) == 1


def test_error_reaches_caller_and_worker_continues() -> None:
    before = worker.run_in_worker(here)
    with pytest.raises(LookupError, match="no such thing"):
        worker.run_in_worker(Mock(side_effect=LookupError("no such thing")))
    assert worker.run_in_worker(here) is before


def test_interrupt_stops_run(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = threading.Event()

    def work(control: worker.RunControl) -> Coroutine[None]:
        assert control.cancelled.wait(10)
        stopped.set()
        yield from ()

    worker.run_in_worker(here)  # starts the worker, which has a queue too
    outcome = SimpleNamespace(put=id, get=Mock(side_effect=KeyboardInterrupt))
    monkeypatch.setattr("pine_engine.scheduling.worker.queue.SimpleQueue", lambda: outcome)
    with pytest.raises(KeyboardInterrupt):
        run_shared(work)
    assert stopped.wait(10)


def test_worker_has_torch_threads_of_main_thread() -> None:
    for count in (1, 3, 2):
        with torch_num_threads(count):
            assert worker.run_in_worker(lambda: torch.get_num_threads()) == count


def test_closed_stream_has_stopped_its_work() -> None:
    order = []

    def work(channel: "worker.Channel[int]", cancelled: threading.Event, end: threading.Event) -> None:
        channel.put(1)
        assert cancelled.wait(10)
        time.sleep(0.05)
        order.append("stopped")
        end.set()

    def submit(channel: "worker.Channel[int]", cancelled: threading.Event) -> threading.Event:
        end = threading.Event()
        threading.Thread(target=work, args=(channel, cancelled, end)).start()
        return end

    items = worker.receive_from(submit)
    assert next(items) == 1
    items.close()
    assert order == ["stopped"]


def test_items_are_computed_when_requested() -> None:
    made: list[threading.Thread] = []

    def make() -> Generator[int, None, None]:
        for number in (1, 2, 3):
            made.append(here())
            yield number

    items = worker.iterate_in_worker(make())
    assert not made
    assert next(items) == 1
    items.close()
    assert made == [worker.run_in_worker(here)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="os.fork exists on POSIX systems only")
def test_fork_starts_own_worker() -> None:
    worker.run_in_worker(here)
    child = os.fork()
    if not child:
        os._exit(0 if worker.run_in_worker(lambda: 7) == 7 else 1)
    assert os.waitpid(child, 0)[1] == 0
