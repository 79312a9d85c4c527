"""Number of torch threads of a forward pass: all threads or one, whichever is faster at the moment.

All threads are about a third faster than one on free cores, but ten times slower if another process occupies
a core, because every thread waits for the slowest after each small operation. So layers are timed.
"""

import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

import torch

OnLayer = Callable[[float], None]
"""Function that is called with the index of each layer when the layer begins. Within a layer of a long
prompt, it is called with a fraction: 3.5 in the middle of the layer with index 3."""

MAX_SINGLE_THREAD_PROMPT = 256
"""Prompt length in tokens up to which attention gains nothing from a second thread."""

NUM_BASELINE_LAYERS, NUM_TRIAL_LAYERS = 6, 12
"""Layers timed with one thread before all threads are tried, and then with all threads before a decision."""

MAX_TIME_RATIO = 0.9
"""All threads are kept if their layers take at most this share of the time with one thread."""

MAX_LOSS_S = 0.01
MAX_LOSS_LAYERS = 2
"""Time that all threads may lose against one before contention is reported: the larger of the two."""

MIN_PAUSE, MAX_PAUSE = 10, 160
"""Pause with one thread after contention, as a multiple of the time lost. It doubles with each report."""

MIN_RETRY_INTERVAL, MAX_RETRY_INTERVAL = 200, 3200
"""Layers between two trials of all threads that gain nothing. The interval doubles with each trial."""

NEWEST_WEIGHT = 0.1  # weight of the newest layer in the moving average of the time with one thread


@contextmanager
def torch_num_threads(count: int | None) -> Iterator[None]:
    """Set the number of torch threads, which may exceed the number of cores; None keeps it."""
    before = torch.get_num_threads()
    if count not in (None, before):
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if torch.get_num_threads() != before:
            torch.set_num_threads(before)


def attention_threads(num_tokens: int) -> int:
    """Return the number of threads for the attention of a prompt; fused attention can depend on it."""
    return 1 if num_tokens <= MAX_SINGLE_THREAD_PROMPT else torch.get_num_threads()


@dataclass
class ContentionMonitor:
    """Contention by other processes, shared by all kinds of layers, which then use one thread."""

    until: float = 0.0  # time in seconds up to which one thread is used
    pause: float = MIN_PAUSE  # next pause, as a multiple of the time lost


@dataclass
class ThreadPolicy:
    """Decision for one kind of layer: all threads, or one. It is tried again at growing intervals."""

    monitor: ContentionMonitor
    single_s: float | None = None  # moving average of a layer with one thread
    num_waiting: int = NUM_BASELINE_LAYERS  # layers with one thread before the next trial
    retry_interval: int = MIN_RETRY_INTERVAL  # layers until another trial, if the next gains nothing
    trial_s: list[float] = field(default_factory=list)  # of each layer, NUM_TRIAL_LAYERS after the trial
    lost_s: float = 0.0  # seconds that all threads have lost against one, at least 0
    pause_until: float = 0.0  # of the last contention taken into account

    def should_use_all(self, now: float) -> bool:
        """Return True if the next layer is to be computed with all threads."""
        if self.pause_until != self.monitor.until:
            self.pause_until = self.monitor.until
            self.trial_s, self.lost_s = [], 0.0
        return self.num_waiting <= 0 and now >= self.monitor.until

    def record(self, used_all: bool, seconds: float, now: float) -> None:
        """Record the duration of a layer that has just ended."""
        if not used_all:
            self.single_s = self.single_s or seconds
            self.single_s += NEWEST_WEIGHT * (seconds - self.single_s)
            self.num_waiting -= 1
            return
        if self.single_s is None:
            return
        self.lost_s = max(0.0, self.lost_s + seconds - self.single_s)
        if self.lost_s > max(MAX_LOSS_S, MAX_LOSS_LAYERS * self.single_s):
            self.monitor.until = now + self.lost_s * self.monitor.pause
            self.monitor.pause = min(2 * self.monitor.pause, MAX_PAUSE)
        elif len(self.trial_s) < NUM_TRIAL_LAYERS:
            self.trial_s.append(seconds)
            if len(self.trial_s) < NUM_TRIAL_LAYERS:
                return
            if sum(self.trial_s) <= MAX_TIME_RATIO * NUM_TRIAL_LAYERS * self.single_s:
                self.retry_interval = MIN_RETRY_INTERVAL
                self.monitor.pause = MIN_PAUSE
            else:
                self.trial_s, self.lost_s = [], 0.0
                self.num_waiting = self.retry_interval
                self.retry_interval = min(2 * self.retry_interval, MAX_RETRY_INTERVAL)


class ThreadTuner:
    """Thread counts of one model's forward passes, by kind of layer."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._monitor = ContentionMonitor()
        self._policies: dict[Hashable, ThreadPolicy] = {}

    def step(self, batch_size: int, on_layer: OnLayer) -> AbstractContextManager[OnLayer]:
        """Tune a decode step; the context is the function to call when a layer begins, with its index."""
        return self._tuned(("step", batch_size), NUM_BASELINE_LAYERS, on_layer)

    def prompt(self, method: Hashable, num_tokens: int, on_layer: OnLayer) -> AbstractContextManager[OnLayer]:
        """Tune the prefill of a prompt, as `step` does."""
        # Layers of a long prompt gain from more threads; one thread is timed only after contention.
        is_long = num_tokens > MAX_SINGLE_THREAD_PROMPT
        return self._tuned((method, num_tokens.bit_length()), 0 if is_long else NUM_BASELINE_LAYERS, on_layer)

    @contextmanager
    def _tuned(self, kind: Hashable, num_waiting: int, on_layer: OnLayer) -> Iterator[OnLayer]:
        threads = torch.get_num_threads()
        policy = self._policies.setdefault(kind, ThreadPolicy(self._monitor, num_waiting=num_waiting))
        started: float | None = None
        use_all = True

        def begin_layer(layer: float) -> None:
            nonlocal started, use_all
            now = self._clock()
            if started is not None and layer % 1:
                on_layer(layer)
                started += self._clock() - now
                return
            if started is not None:
                policy.record(use_all, now - started, now)
            if use_all != policy.should_use_all(now):
                use_all = not use_all
                torch.set_num_threads(threads if use_all else 1)
            on_layer(layer)
            started = self._clock()  # other runs may be computed in on_layer

        try:
            yield begin_layer if threads > 1 else on_layer
        finally:
            torch.set_num_threads(threads)
