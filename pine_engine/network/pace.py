"""With how many threads a pass is computed: with all, or with one, whichever is faster just now.

A pass is hundreds of small operations, after each of which the threads wait for each other. Where every core
is free, all threads are a third faster than one. Where another process has one of the cores, the thread that
shares it keeps all others waiting, hundreds of times a step, and they are ten times as slow as one alone. Who
else is busy, a browser or another visitor of the machine, is not known beforehand and changes. So layers are
timed, and now and then two are computed with the other number of threads: a trial that goes wrong costs two
layers, not a pass.

While a prompt is read, that is true of all but its attention, in which bits may depend on the number: fused
attention of 100 queries with heads of 128 has others with one thread than with two. The attention of short
prompts is always computed with one, which is as fast, and that of long ones with all: which it is depends on
the length of the prompt alone, so that it is the same in every order of its documents.
"""

import time
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

import torch

SHORT_PROMPT = 256
"""Tokens up to which the attention of a prompt gains nothing from a second thread."""

TRIAL = 2
"""Layers of a trial, of which the fastest counts: the first one wakes threads."""

RECENT = 4
"""Layers of which the fastest counts as usual, so that one that was interrupted does not."""

FIRST_PATIENCE = 30
"""Layers after which the other number of threads is tried; twice as many each time that it was slower."""

MOST_PATIENCE = 480

WORTH_IT = 0.9
"""A change is made for layers that take at most this share of the usual time."""

SUSPICIOUS = 2.0
"""Layers that take so many times what the other number was seen to take have the other tried at once."""


@dataclass
class Choice:
    """Whether layers of one kind are computed with all threads; tells nothing of any other kind.

    usual: seconds of a layer with all threads and with one, as last seen; None before. recent: of the last
    layers. tried: of the layers of a trial that is going on. waited: layers since the last one.
    """

    with_all: bool = True
    usual: dict[bool, float | None] = field(default_factory=lambda: {True: None, False: None})
    patience: int = FIRST_PATIENCE
    waited: int = 0
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))
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
        self.recent.append(seconds)
        usual, other = min(self.recent), self.usual[not with_all]
        self.usual[with_all] = usual
        is_full = len(self.recent) == RECENT
        is_suspicious = is_full and other is not None and usual > SUSPICIOUS * other
        self.waited = self.patience if is_suspicious else self.waited + 1

    def _judge(self, seconds: float) -> None:
        self.waited, self.tried = 0, []
        self.usual[not self.with_all] = seconds
        now = self.usual[self.with_all]
        if now is None or seconds <= WORTH_IT * now:
            self.with_all, self.patience = not self.with_all, FIRST_PATIENCE
            self.recent.clear()
        else:
            self.patience = min(2 * self.patience, MOST_PATIENCE)


def attention_threads(num_tokens: int) -> int:
    """With how many threads the attention of a prompt of so many tokens is computed."""
    return 1 if num_tokens <= SHORT_PROMPT else torch.get_num_threads()


class Pace:
    """The choices of one model's passes, by what is computed in them."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._choices: defaultdict[Hashable, Choice] = defaultdict(Choice)

    def step(self, rows: int) -> AbstractContextManager[Callable[[], None]]:
        """Computes a step of so many rows; what it gives is called at the start of each layer.

        The caller has its own number of threads back at the end.
        """
        return self._paced(("step", rows))

    def prompt(self, method: Hashable, num_tokens: int) -> AbstractContextManager[Callable[[], None]]:
        """Reads a prompt of so many tokens under a method; all else as in step."""
        return self._paced((method, num_tokens.bit_length()))

    @contextmanager
    def _paced(self, what: Hashable) -> Iterator[Callable[[], None]]:
        threads, choice = torch.get_num_threads(), self._choices[what]
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
