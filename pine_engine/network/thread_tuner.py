"""With how many threads a pass is computed: with all, or with one, whichever is faster just now.

A pass is hundreds of small operations, after each of which the threads wait for each other. Where every core
is free, all threads are a third faster than one. Where another process has one of the cores, the thread that
shares it keeps all others waiting for as long as the system lets the other go on, and they are ten times as
slow as one alone; now and then a layer goes through as if nobody were there. Who else is busy, a browser or
another visitor of the machine, is not known beforehand and changes. So layers are timed. What all threads
have lost against one is added up, and beyond a few layers' worth there is somebody: then nothing is computed
with all threads for many times as long as was lost, whatever kind of layer noticed it.

While a prompt is read, that is true of all but its attention, in which bits may depend on the number: fused
attention of 100 queries with heads of 128 has others with one thread than with two. The attention of short
prompts is always computed with one, which is as fast, and that of long ones with all: which it is depends on
the length of the prompt alone, so that it is the same in every order of its documents.
"""

import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import torch

SHORT_PROMPT = 256
"""Tokens up to which the attention of a prompt gains nothing from a second thread."""

SETTLED = 6
"""Layers with one thread after which it is known how long they take."""

TRIAL = 12
"""Layers with all threads that show whether they gain anything."""

WORTH_IT = 0.9
"""All threads stay where their layers take at most this share of the time with one."""

MOST_LOST_S = 0.01
MOST_LOST_LAYERS = 2
"""What all threads may lose against one before somebody else is taken to be busy: the larger of the two."""

FIRST_PAUSE = 10
MOST_PAUSE = 160
"""For how many times as long as was lost one thread computes: twice as long each time in turn."""

FIRST_PATIENCE = 200
MOST_PATIENCE = 3200
"""Layers after which all threads are tried again where they gained nothing: twice as many each time."""

NEWEST_SHARE = 0.1
"""Of the newest layer in the usual time of a layer with one thread."""


@dataclass
class ContentionMonitor:
    """Whether somebody else is busy, as any kind of layer notices.

    until: by the clock, in seconds, before which one thread computes. noticed: how often somebody was.
    """

    until: float = 0.0
    noticed: int = 0
    pause: float = FIRST_PAUSE

    def report_slowdown(self, now: float, lost: float) -> None:
        """Somebody was in the way, which has cost so many seconds."""
        self.until = now + lost * self.pause
        self.pause = min(2 * self.pause, MOST_PAUSE)
        self.noticed += 1

    def reset(self) -> None:
        """All threads were seen to gain something."""
        self.pause = FIRST_PAUSE


@dataclass
class ThreadPolicy:
    """Whether layers of one kind are computed with all threads.

    usual: seconds of a layer with one thread, None before the first. waits: layers with one thread that are
    still to come before all are tried. tried, spent: layers of the trial that is going on, and their seconds;
    TRIAL of them once it is over. lost: seconds that all threads have lost against one, none where they gain.
    """

    crowd: ContentionMonitor
    usual: float | None = None
    waits: int = SETTLED
    retry_interval: int = FIRST_PATIENCE
    tried: int = 0
    spent: float = 0.0
    lost: float = 0.0
    noticed: int = 0

    def next(self, now: float) -> bool:
        """Whether the next layer is computed with all threads."""
        if self.noticed != self.crowd.noticed:
            self.noticed = self.crowd.noticed
            self._begin_trial()
        return self.waits <= 0 and now >= self.crowd.until

    def took(self, with_all: bool, seconds: float, now: float) -> None:
        """Learns how long a layer has taken that ended just now."""
        if not with_all:
            self.usual = self.usual or seconds
            self.usual += NEWEST_SHARE * (seconds - self.usual)
            self.waits -= 1
            return
        if self.usual is None:
            return
        self.lost = max(0.0, self.lost + seconds - self.usual)
        if self.lost > max(MOST_LOST_S, MOST_LOST_LAYERS * self.usual):
            self.crowd.report_slowdown(now, self.lost)
        elif self.tried < TRIAL:
            self.tried += 1
            self.spent += seconds
            if self.tried == TRIAL:
                self._judge(self.usual)

    def _begin_trial(self) -> None:
        self.tried, self.spent, self.lost = 0, 0.0, 0.0

    def _judge(self, usual: float) -> None:
        if self.spent <= WORTH_IT * TRIAL * usual:
            self.retry_interval = FIRST_PATIENCE
            self.crowd.reset()
        else:
            self._begin_trial()
            self.waits, self.retry_interval = self.retry_interval, min(2 * self.retry_interval, MOST_PATIENCE)


def attention_threads(num_tokens: int) -> int:
    """With how many threads the attention of a prompt of so many tokens is computed."""
    return 1 if num_tokens <= SHORT_PROMPT else torch.get_num_threads()


class ThreadTuner:
    """The choices of one model's passes, by what is computed in them."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._crowd = ContentionMonitor()
        self._choices: dict[Hashable, ThreadPolicy] = {}

    def step(self, rows: int) -> AbstractContextManager[Callable[[], None]]:
        """Computes a step of so many rows; what it gives is called at the start of each layer.

        The caller has its own number of threads back at the end.
        """
        return self._paced(("step", rows), SETTLED)

    def prompt(self, method: Hashable, num_tokens: int) -> AbstractContextManager[Callable[[], None]]:
        """Reads a prompt of so many tokens under a method; all else as in step.

        Layers of a long one gain by every thread, and one of them may take as long with a single thread as
        many with all: how long is learnt only when somebody else is noticed to be busy.
        """
        return self._paced((method, num_tokens.bit_length()), 0 if num_tokens > SHORT_PROMPT else SETTLED)

    @contextmanager
    def _paced(self, what: Hashable, waits: int) -> Iterator[Callable[[], None]]:
        threads = torch.get_num_threads()
        choice = self._choices.setdefault(what, ThreadPolicy(self._crowd, waits=waits))
        began: float | None = None
        with_all = True

        def begin_layer() -> None:
            nonlocal began, with_all
            now = self._clock()
            if began is not None:
                choice.took(with_all, now - began, now)
            if with_all != choice.next(now):
                with_all = not with_all
                torch.set_num_threads(threads if with_all else 1)
            began = now

        try:
            yield begin_layer if threads > 1 else lambda: None
        finally:
            torch.set_num_threads(threads)
