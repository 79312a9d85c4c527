"""With how many threads a decoding step is computed: with all, or with one, whichever is faster just now.

A step is hundreds of small operations, after each of which the threads wait for each other. Where every core
is free, all threads are a third faster than one. Where another process has one of the cores, the thread that
shares it keeps all others waiting, hundreds of times a step, and they are ten times as slow as one alone. Who
else is busy, a browser or another visitor of the machine, is not known beforehand and changes. So layers are
timed while answers are written, and now and then two are computed with the other number of threads: a trial
that goes wrong costs two layers, not a step.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

TRIAL = 2
"""Layers of a trial, of which the faster counts: the first one wakes threads."""

FIRST_PATIENCE = 30
"""Layers after which the other number of threads is tried; twice as many each time that it was slower."""

MOST_PATIENCE = 480

WORTH_IT = 0.9
"""A change is made for layers that take at most this share of the usual time."""

SUSPICIOUS = 2.0
"""A layer that takes so many times what the other number was seen to take has the other tried at once."""


@dataclass
class Choice:
    """Whether layers of one width are computed with all threads; tells nothing of any other width.

    usual: seconds of a layer with all threads and with one, as last seen; None before. tried: seconds of the
    layers of a trial that is going on. waited: layers since the last one.
    """

    with_all: bool = True
    usual: dict[bool, float | None] = field(default_factory=lambda: {True: None, False: None})
    patience: int = FIRST_PATIENCE
    waited: int = 0
    tried: list[float] = field(default_factory=list)

    def next(self) -> bool:
        """Whether the next layer is computed with all threads."""
        return self.with_all != (self.waited >= self.patience)

    def took(self, with_all: bool, seconds: float) -> None:
        """Learns how long a layer has taken."""
        if with_all != self.with_all:
            self.tried.append(seconds)
            if len(self.tried) == TRIAL:
                self._judge(min(self.tried))
            return
        before, other = self.usual[with_all], self.usual[not with_all]
        self.usual[with_all] = seconds if before is None else (7 * before + seconds) / 8
        is_suspicious = other is not None and seconds > SUSPICIOUS * other
        self.waited = self.patience if is_suspicious else self.waited + 1

    def _judge(self, seconds: float) -> None:
        self.waited, self.tried = 0, []
        self.usual[not self.with_all] = seconds
        now = self.usual[self.with_all]
        if now is None or seconds <= WORTH_IT * now:
            self.with_all, self.patience = not self.with_all, FIRST_PATIENCE
        else:
            self.patience = min(2 * self.patience, MOST_PATIENCE)


class Pace:
    """The choices of one model's steps, by their number of rows."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._choices: defaultdict[int, Choice] = defaultdict(Choice)

    @contextmanager
    def step(self, rows: int) -> Iterator[Callable[[], None]]:
        """Computes a step of so many rows; what it yields is called at the start of each layer.

        The caller has its own number of threads back at the end.
        """
        threads, choice = torch.get_num_threads(), self._choices[rows]
        began: float | None = None
        with_all = True

        def begin_layer() -> None:
            nonlocal began, with_all
            now = self._clock()
            if began is not None:
                choice.took(with_all, now - began)
            if with_all != choice.next():
                with_all = not with_all
                torch.set_num_threads(threads if with_all else 1)
            began = now

        try:
            yield begin_layer if threads > 1 else lambda: None
        finally:
            torch.set_num_threads(threads)
