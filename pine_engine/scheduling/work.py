"""Work of a run, and an estimate of its duration from earlier runs."""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import ceil
from operator import add

NUM_RECENT_RUNS = 20  # number of runs that the speed is estimated from


@dataclass(frozen=True)
class Work:
    """Planned or completed work of a job."""

    prompts: int = 0  # number of prefills: one per method and order
    prompt_tokens: int = 0  # prompt tokens in all prefills
    new_tokens: int = 0  # new tokens in all answers
    orders: int = 0
    prefill_s: float = 0.0  # prefill seconds; 0 if unknown
    decode_s: float = 0.0  # decode seconds; 0 if unknown
    bytes_at_once: float = field(default=0, compare=False)  # memory that the run takes; 0 if unknown

    def __add__(self, other: "Work") -> "Work":
        total = Work(*map(add, vars(self).values(), vars(other).values()))
        return replace(total, bytes_at_once=max(self.bytes_at_once, other.bytes_at_once))

    def describe_prompts(self, noun: str = "prompt", about: str = "") -> str:
        """Return the number of prompts and of their tokens in words."""
        nouns = f"{noun}{'s' if self.prompts != 1 else ''}"
        return f"{self.prompts:,} {nouns}, {about}{self.prompt_tokens:,} tokens"

    def times(self, factor: float) -> "Work":
        """Multiply the work by a factor, rounded to whole tokens."""
        return Work(
            round(factor * self.prompts),
            round(factor * self.prompt_tokens),
            round(factor * self.new_tokens),
            self.orders,
            factor * self.prefill_s,
            factor * self.decode_s,
            self.bytes_at_once,
        )


def planned(
    *, tokens: int, methods: int, orders: int = 1, new_tokens: int = 0, bytes_at_once: float = 0
) -> Work:
    """Return the work of a prompt under each method in each order."""
    prompts = methods * orders
    return Work(prompts, prompts * tokens, prompts * new_tokens, orders, bytes_at_once=bytes_at_once)


class Speed:
    """Seconds per token, from the runs of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._measured: deque[Work] = deque(maxlen=NUM_RECENT_RUNS)

    def learn(self, work: Work, seconds: float) -> None:
        """Add completed work, and scale its prefill and decode time to the total seconds."""
        if spent := work.prefill_s + work.decode_s:
            scale = seconds / spent
            scaled = replace(work, prefill_s=scale * work.prefill_s, decode_s=scale * work.decode_s)
            with self._lock:
                self._measured.append(scaled)

    def seconds(self, work: Work) -> float | None:
        """Estimate the seconds of planned work; None without earlier runs."""
        with self._lock:
            total = sum(self._measured, Work())
        if (work.prompt_tokens and not total.prompt_tokens) or (work.new_tokens and not total.new_tokens):
            return None
        prefill_s = work.prompt_tokens * total.prefill_s / max(1, total.prompt_tokens)
        return prefill_s + work.new_tokens * total.decode_s / max(1, total.new_tokens)

    def estimate(
        self, work: Work, label: str = "", describe_prompts: Callable[[Work], str] = Work.describe_prompts
    ) -> str:
        """Describe the estimated time of planned work, or its amount before the first run; "" for no work.

        With decoding, the time is an upper bound, because answers may end early.
        """
        if not work.prompts:
            return ""
        seconds = self.seconds(work)
        if seconds is not None:
            time = f"{'up to ' if work.new_tokens else ''}{format_seconds(seconds)}"
            return f"{label or 'Estimated time'}: {time}."
        prompts = describe_prompts(work)
        amount = f"{prompts}; up to {work.new_tokens:,} new tokens" if work.new_tokens else prompts
        return f"{label}: {amount}." if label else f"{amount}."


def format_seconds(seconds: float) -> str:
    """Format a time, rounded up: "4 s", "40 s", "3 min"."""
    if seconds < 10:
        return f"{max(1, ceil(seconds))} s"
    return f"{10 * ceil(seconds / 10)} s" if seconds < 90 else f"{ceil(seconds / 60)} min"
