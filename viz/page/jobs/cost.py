"""How much work a job is, and about how long it takes by what this process has measured so far."""

import threading
from collections import deque
from dataclasses import dataclass
from math import ceil

REMEMBERED = 20
"""Runs of which the speed is kept: a model that was changed, or a busy hour, is soon forgotten."""


@dataclass(frozen=True)
class Work:
    """What a job reads and writes, planned or done."""

    prompts: int = 0
    """Read by one method in one order each."""

    prompt_tokens: int = 0
    """In all of them."""

    new_tokens: int = 0
    """In all answers."""

    orders: int = 0
    read_s: float = 0.0
    """Seconds that the model spent on reading; 0 where nothing was measured."""

    write_s: float = 0.0
    """The same of writing."""

    def __add__(self, other: "Work") -> "Work":
        return Work(
            self.prompts + other.prompts,
            self.prompt_tokens + other.prompt_tokens,
            self.new_tokens + other.new_tokens,
            self.orders + other.orders,
            self.read_s + other.read_s,
            self.write_s + other.write_s,
        )

    def times(self, factor: float) -> "Work":
        """So many times as much, in whole tokens."""
        return Work(
            round(factor * self.prompts),
            round(factor * self.prompt_tokens),
            round(factor * self.new_tokens),
            self.orders,
            factor * self.read_s,
            factor * self.write_s,
        )


def planned(*, tokens: int, methods: int, orders: int = 1, new_tokens: int = 0) -> Work:
    """The work of a prompt of so many tokens under each method in each order, each with such an answer."""
    prompts = methods * orders
    return Work(prompts, prompts * tokens, prompts * new_tokens, orders)


class Speed:
    """Seconds per token, from the runs of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._measured: deque[Work] = deque(maxlen=REMEMBERED)

    def learn(self, work: Work, seconds: float) -> None:
        """Remembers work that was done and took so many seconds in all, with what the page added to it."""
        spent = work.read_s + work.write_s
        if not spent:
            return
        scale = seconds / spent
        with self._lock:
            self._measured.append(
                Work(
                    prompt_tokens=work.prompt_tokens,
                    new_tokens=work.new_tokens,
                    read_s=scale * work.read_s,
                    write_s=scale * work.write_s,
                )
            )

    def seconds(self, work: Work) -> float | None:
        """About how long planned work takes; None if nothing like it was measured yet."""
        with self._lock:
            total = sum(self._measured, Work())
        if (work.prompt_tokens and not total.prompt_tokens) or (work.new_tokens and not total.new_tokens):
            return None
        reading = work.prompt_tokens * total.read_s / max(1, total.prompt_tokens)
        return reading + work.new_tokens * total.write_s / max(1, total.new_tokens)

    def estimate(self, work: Work) -> str:
        """A sentence: how long planned work takes; before any run, how much it is; "" for none.

        At most so long where answers are written, since they may end before they are as long as they may be.
        """
        if not work.prompts:
            return ""
        seconds = self.seconds(work)
        if seconds is not None:
            return f"Takes {'at most ' if work.new_tokens else ''}about {in_words(seconds)}."
        read = f"{work.prompts:,} prompt{'s' if work.prompts != 1 else ''} to read"
        tokens = f"{read}, {work.prompt_tokens:,} tokens in all"
        return f"{tokens}; up to {work.new_tokens:,} to write." if work.new_tokens else f"{tokens}."


def in_words(seconds: float) -> str:
    """A time in words, rounded up as it is an estimate: "4 s", "40 s", "3 min"."""
    if seconds < 10:
        return f"{max(1, ceil(seconds))} s"
    return f"{10 * ceil(seconds / 10)} s" if seconds < 90 else f"{ceil(seconds / 60)} min"
