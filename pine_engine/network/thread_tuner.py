"""Number of torch threads of a forward pass: all threads or one, whichever is faster at the moment.

All threads are about a third faster than one on free cores, but ten times slower if another process occupies
a core, because every thread waits for the slowest after each small operation. So layers are timed.
"""

import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

import torch

OnLayer = Callable[[float], None]
"""Function that is called with the index of each layer when the layer begins. Within a layer of a long
prompt, it is called with a fraction: 3.5 in the middle of the layer with index 3."""

MAX_SINGLE_THREAD_PROMPT = 256
"""Prompt length in tokens up to which attention gains nothing from a second thread."""

NUM_BASELINE_LAYERS, NUM_LONG_BASELINE_LAYERS = 6, 2
"""Layers timed with one thread before all threads are tried; the second of a long prompt."""

MIN_TRIAL_LAYERS, MAX_TRIAL_LAYERS = 12, 192
"""Layers with all threads between two such baselines. The number doubles while all threads gain."""

MAX_TIME_RATIO = 0.95
"""All threads are kept if their layers take at most this share of the time with one thread."""

MAX_LOSS_S = 0.01
MAX_LOSS_LAYERS = 2
"""Time that all threads may lose against one before contention is reported: the larger of the two."""

MIN_PAUSE, MAX_PAUSE = 20, 160
"""Pause with one thread after contention, as a multiple of the time lost.

It doubles with each report, until all threads were used for as long as the last pause without a report. Gain
in a short trial does not end it: a thread that has slept gets a core at once, but only for a moment.
"""

MIN_RETRY_INTERVAL, MAX_RETRY_INTERVAL = 60, 240
"""Layers between two trials of all threads that gain nothing. The interval doubles with each trial."""


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
    pause_s: float = 0.0  # duration of the last pause

    def report(self, lost_s: float, now: float) -> None:
        """Begin a pause after contention in which all threads have lost `lost_s` against one."""
        if now > self.until + self.pause_s:
            self.pause = MIN_PAUSE
        self.pause_s = lost_s * self.pause
        self.until = now + self.pause_s
        self.pause = min(2 * self.pause, MAX_PAUSE)


@dataclass
class ThreadPolicy:
    """Decision for one kind of layer: all threads, or one.

    Layers with one thread are timed again and again, because the first ones also compile kernels and read
    weights from the disk, and later ones attend to more tokens. All times are in seconds per unit of size.
    """

    monitor: ContentionMonitor
    num_baseline: int = NUM_BASELINE_LAYERS
    num_waiting: int = field(init=False)  # layers with one thread before the next trial
    num_trial: int = MIN_TRIAL_LAYERS  # layers with all threads until the next baseline
    retry_interval: int = MIN_RETRY_INTERVAL  # layers until another trial, if the next gains nothing
    single_s: deque[float] = field(init=False)  # of the last layers with one thread
    trial_s: list[float] = field(default_factory=list)  # of each layer with all threads since the baseline
    lost_s: float = 0.0  # seconds that all threads have lost against one, at least 0
    pause_until: float = 0.0  # of the last contention taken into account

    def __post_init__(self) -> None:
        self.num_waiting = self.num_baseline
        self.single_s = deque(maxlen=self.num_baseline)

    def should_use_all(self, now: float) -> bool:
        """Return True if the next layer is to be computed with all threads."""
        if self.pause_until != self.monitor.until:
            self.pause_until = self.monitor.until
            self.trial_s, self.lost_s = [], 0.0
            self.num_trial, self.num_waiting = MIN_TRIAL_LAYERS, max(self.num_waiting, self.num_baseline)
        return self.num_waiting <= 0 and now >= self.monitor.until

    def record(self, used_all: bool, seconds: float, now: float, size: int = 1) -> None:
        """Record the duration of a layer that has just ended, for `size` tokens or one decode step."""
        if not used_all:
            self.single_s.append(seconds / size)
            self.num_waiting -= 1
            return
        baseline_s = self._baseline_s()
        self.lost_s = max(0.0, self.lost_s + seconds - baseline_s * size)
        if self.lost_s > max(MAX_LOSS_S, MAX_LOSS_LAYERS * baseline_s * size):
            self.monitor.report(self.lost_s, now)
            return
        self.trial_s.append(seconds / size)
        if len(self.trial_s) < self.num_trial:
            return
        if sum(self.trial_s) <= MAX_TIME_RATIO * len(self.trial_s) * baseline_s:
            self.retry_interval = MIN_RETRY_INTERVAL
            self.num_trial = min(2 * self.num_trial, MAX_TRIAL_LAYERS)
            self.num_waiting = self.num_baseline
        else:
            self.num_trial = MIN_TRIAL_LAYERS
            self.num_waiting = self.retry_interval
            self.retry_interval = min(2 * self.retry_interval, MAX_RETRY_INTERVAL)
        self.trial_s, self.lost_s = [], 0.0

    def _baseline_s(self) -> float:
        """Return the mean time of the last layers with one thread, without the slowest; inf before them."""
        others = sorted(self.single_s)[:-1]
        return sum(others) / len(others) if others else float("inf")


class ThreadTuner:
    """Thread counts of one model's forward passes, by kind of layer."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._monitor = ContentionMonitor()
        self._policies: dict[Hashable, ThreadPolicy] = {}

    def step(self, batch_size: int, on_layer: OnLayer) -> AbstractContextManager[OnLayer]:
        """Tune a decode step; the context is the function to call when a layer begins, with its index."""
        return self._tuned(("step", batch_size), 1, NUM_BASELINE_LAYERS, on_layer)

    def prompt(self, method: Hashable, num_tokens: int, on_layer: OnLayer) -> AbstractContextManager[OnLayer]:
        """Tune the prefill of a prompt, as `step` does."""
        # Layers of a long prompt gain from more threads, so fewer are timed with one.
        is_long = num_tokens > MAX_SINGLE_THREAD_PROMPT
        num_baseline = NUM_LONG_BASELINE_LAYERS if is_long else NUM_BASELINE_LAYERS
        return self._tuned((method, num_tokens.bit_length()), num_tokens, num_baseline, on_layer)

    @contextmanager
    def _tuned(self, kind: Hashable, size: int, num_baseline: int, on_layer: OnLayer) -> Iterator[OnLayer]:
        threads = torch.get_num_threads()
        policy = self._policies.setdefault(kind, ThreadPolicy(self._monitor, num_baseline))
        started: float | None = None
        use_all = True

        def select_threads(now: float) -> None:
            nonlocal use_all
            if use_all != policy.should_use_all(now):
                use_all = not use_all
                torch.set_num_threads(threads if use_all else 1)

        def begin_layer(layer: float) -> None:
            nonlocal started
            now = self._clock()
            if started is not None and layer % 1:
                on_layer(layer)
                started += self._clock() - now
                return
            if started is not None:
                policy.record(use_all, now - started, now, size)
            select_threads(now)
            on_layer(layer)
            started = self._clock()  # other runs may be computed in on_layer

        try:
            if threads > 1:
                select_threads(self._clock())  # also for the embedding, and the first layer up to attention
            yield begin_layer if threads > 1 else on_layer
        finally:
            torch.set_num_threads(threads)
