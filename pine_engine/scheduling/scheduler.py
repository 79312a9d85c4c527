"""Scheduler of runs that several threads start at the same time: one worker computes all of them.

Decode steps of different runs are computed in one batch (continuous batching), which changes no logit for
batch sizes from 2 on. Prefills alternate with decode steps: each gets half of the time. Between two layers of
a long prefill, and between parts of a long layer, decode steps and short prefills of other runs are computed
in the same thread, inside the forward pass. A second thread would need a second team of OpenMP threads.
"""

import os
import queue
import threading
import time
from collections.abc import Callable, Generator, Hashable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

import torch

from pine_engine.network.registration import outside_modules
from pine_engine.network.thread_tuner import torch_num_threads
from pine_engine.scheduling.worker import Channel, RunControl, is_worker, receive_from, wait_for, workers

Result = TypeVar("Result")
Item = TypeVar("Item")


@dataclass(frozen=True)
class PendingPrefill:
    """Prefill that its coroutine computes when it is resumed."""

    num_tokens: int
    is_divisible: bool = True  # True if others may compute between its layers

    def compute(self) -> None:
        """Compute nothing: the prefill follows."""


class PendingStep(Protocol):
    """Decode step that is computed before its coroutine is resumed."""

    @property
    def sharing_key(self) -> Hashable:
        """Key of steps that can be computed in one batch; None if the batch size can change a logit."""

    @property
    def can_repeat(self) -> bool:
        """True if the step can be repeated after an error."""

    def lengths(self) -> list[int]:
        """Return the lengths by which `truncate` restores the state before the step."""

    def truncate(self, lengths: list[int]) -> None:
        """Restore the state before the step."""

    def compute(self, others: Sequence[Any] = ()) -> None:
        """Compute this step, and others of the same `sharing_key` in the same batch."""


Coroutine = Generator[PendingPrefill | PendingStep, None, Result]
"""Run that yields each prefill and decode step that it waits for."""


def compute_alone(coroutine: Coroutine[Result]) -> Result:
    """Return the result of a coroutine whose decode steps are not shared."""
    while True:
        try:
            pending = next(coroutine)
        except StopIteration as end:
            result: Result = end.value
            return result
        pending.compute()


_compute_others: ContextVar[Callable[[float], None] | None] = ContextVar("compute_others", default=None)

LEVEL_TOKENS = 2048
"""Prefilled tokens per level. Runs of the lowest level are prefilled first, and of these the oldest run."""

MIN_SIZE_RATIO = 4
"""A prefill is interrupted by prefills of at most this fraction of its remaining tokens."""


@dataclass(eq=False)
class ScheduledRun:
    """Coroutine of a run, and the forward pass that it waits for."""

    coroutine: Coroutine[None]  # does not raise
    finished: threading.Event
    pending: PendingPrefill | PendingStep | None = None  # None while the run is resumed
    num_tokens: int = 0  # prefilled so far

    @property
    def step(self) -> PendingStep | None:
        """Decode step that the run waits for; None if it waits for a prefill."""
        return None if isinstance(self.pending, PendingPrefill) else self.pending


class Scheduler:
    """Active runs in the order of their start, computed in one job of a worker."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all runs, which a fork does not have."""
        self._arrived: queue.SimpleQueue[ScheduledRun] = queue.SimpleQueue()
        self._runs: list[ScheduledRun] = []
        self._ended: list[ScheduledRun] = []  # without a signal so far
        self._lock = threading.Lock()
        self._is_active = False
        self._num_threads = 1
        self._step_end_s = self._step_s = 0.0  # end and duration of the last decode steps
        self._num_prefills = 0

    @property
    def num_arrived(self) -> int:
        """Number of runs that have not started yet."""
        return self._arrived.qsize()

    def submit(self, coroutine: Coroutine[None]) -> threading.Event:
        """Compute a coroutine that does not raise; return its end."""
        run = ScheduledRun(coroutine, threading.Event())
        with self._lock:
            self._arrived.put(run)
            starts, self._is_active = not self._is_active, True
        if starts:
            workers.submit(self._compute_all)
        return run.finished

    def _compute_all(self) -> None:
        self._num_threads = torch.get_num_threads()
        while self._take_arrived():
            try:
                self._compute_next()
            except BaseException as error:  # not of a single run
                for run in list(self._runs):
                    self._resume(run, error)

    def _compute_next(self) -> None:
        waiting = self._waiting()
        if not waiting or self._is_step_due():
            self._compute_steps()
            return
        # The oldest run gets every second prefill, so that it ends even if others always arrive.
        self._num_prefills += 1
        is_oldest = self._num_prefills % 2 == 0
        self._compute_prefill(waiting[0] if is_oldest else min(waiting, key=_level), is_inner=False)

    def _take_arrived(self) -> bool:
        """Start the runs that have arrived; return False if there are none and no other run."""
        while True:
            self._signal_ends()
            with self._lock:
                if self._arrived.empty():
                    self._is_active = bool(self._runs)
                    return self._is_active
            run = self._arrived.get()
            self._runs.append(run)
            self._resume(run)

    def _waiting(self) -> list[ScheduledRun]:
        return [run for run in self._runs if isinstance(run.pending, PendingPrefill)]

    def _is_step_due(self) -> bool:
        """Check whether a run waits for a step, and prefills have had as much time as the last steps."""
        is_waiting = any(run.step for run in self._runs)
        return is_waiting and time.monotonic() - self._step_end_s > self._step_s

    def _compute_steps(self) -> None:
        """Compute one decode step of each run that waits for one, and resume them."""
        began = time.monotonic()
        groups: dict[object, list[tuple[ScheduledRun, PendingStep]]] = {}
        for run in self._runs:
            if step := run.step:
                groups.setdefault(step.sharing_key or run, []).append((run, step))
        for group in groups.values():
            self._compute_together(group)
        self._step_end_s = time.monotonic()
        self._step_s = self._step_end_s - began

    def _compute_together(self, group: list[tuple[ScheduledRun, PendingStep]]) -> None:
        steps = [step for _, step in group]
        lengths = [step.lengths() for step in steps] if len(steps) > 1 else []
        try:
            steps[0].compute(steps[1:])
        except BaseException as error:
            self._fail(group, lengths, error)
            return
        for run, _ in group:
            self._resume(run)

    def _fail(
        self, group: list[tuple[ScheduledRun, PendingStep]], lengths: list[list[int]], error: BaseException
    ) -> None:
        """Compute steps that failed together alone; raise the error in runs that cannot repeat theirs."""
        for number, (run, step) in enumerate(group):
            if len(group) > 1 and step.can_repeat:
                step.truncate(lengths[number])
                self._compute_together([(run, step)])
            else:
                self._resume(run, error)

    def _compute_prefill(self, run: ScheduledRun, *, is_inner: bool) -> None:
        pending = run.pending
        if isinstance(pending, PendingPrefill):
            run.num_tokens += pending.num_tokens
            between_layers = partial(self._between_layers, pending.num_tokens, is_inner=is_inner)
            before = _compute_others.set(between_layers if pending.is_divisible else None)
            try:
                self._resume(run)
            finally:
                _compute_others.reset(before)

    def _between_layers(self, num_tokens: int, share_left: float, *, is_inner: bool) -> None:
        """Compute decode steps and a short prefill of other runs inside a prefill."""
        if len(self._runs) == 1 and self._arrived.empty() and not self._ended:
            return
        with outside_modules(), torch_num_threads(self._num_threads):
            self._take_arrived()
            if self._is_step_due():
                self._compute_steps()
            if is_inner:
                return
            most = num_tokens * share_left / MIN_SIZE_RATIO
            short = [run for run in self._waiting() if run.pending and _size(run) <= most]
            if short:
                self._compute_prefill(min(short, key=_level), is_inner=True)

    def _resume(self, run: ScheduledRun, error: BaseException | None = None) -> None:
        """Compute a run up to the next forward pass that it waits for; raise an error in it."""
        run.pending = None
        try:
            run.pending = next(run.coroutine) if error is None else run.coroutine.throw(error)
        except StopIteration:
            self._runs.remove(run)
            self._ended.append(run)

    def _signal_ends(self) -> None:
        """Signal the ends of runs, once no frame has tensors of them."""
        for run in self._ended:
            run.finished.set()
        self._ended.clear()


def _level(run: ScheduledRun) -> int:
    return run.num_tokens // LEVEL_TOKENS


def _size(run: ScheduledRun) -> int:
    return run.pending.num_tokens if isinstance(run.pending, PendingPrefill) else 0


def compute_between_layers(share_left: float) -> None:
    """Compute other runs between two layers of a prefill with this share left, or parts of a long layer."""
    if compute_others := _compute_others.get():
        compute_others(share_left)


scheduler = Scheduler()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=scheduler.reset)


def run_shared(work: Callable[[RunControl], Coroutine[Result]]) -> Result:
    """Return the result of a coroutine in a worker; decode steps are shared with other runs.

    If the caller is a worker, the coroutine is computed alone. The control stops the run if the caller is
    interrupted.
    """
    if is_worker():
        return compute_alone(work(RunControl()))

    def submit(control: RunControl, outcome: Channel[Result]) -> threading.Event:
        def coroutine() -> Coroutine[None]:
            try:
                outcome.put((yield from work(control)))
            except BaseException as error:  # raised again in the calling thread
                outcome.put(error)

        return scheduler.submit(coroutine())

    return wait_for(submit)


def stream_shared(
    work: Callable[[RunControl], Coroutine[None]], *, beat: tuple[float, Item] | None = None
) -> Generator[Item, None, None]:
    """Yield the events that a coroutine with shared decode steps reports. See `receive_from` for `beat`."""

    def submit(channel: Channel[Item], cancelled: threading.Event) -> threading.Event:
        def coroutine() -> Coroutine[None]:
            try:
                yield from work(RunControl(channel.put, cancelled))
            except BaseException as error:  # raised again in the calling thread
                channel.put(error)
            finally:
                channel.put(None)

        return scheduler.submit(coroutine())

    return receive_from(submit, beat)
