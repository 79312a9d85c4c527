"""The line in front of the model: one run at a time, in the order in which they came.

It is ours and not gradio's, so that whoever waits is told how many are before him and can press Stop, and
whoever may not is told so in a sentence.
"""

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from pine_engine.errors import PineError

REMEMBERED = 10
"""Runs of whose length the wait is guessed."""


class Line:
    """Who waits for the model, the first of them having it. most: how many may wait."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._moved = threading.Condition()
        self._places: list[Place] = []
        self._lasted: deque[float] = deque(maxlen=REMEMBERED)

    @contextmanager
    def join(self) -> Iterator["Place"]:
        """A place in the line until the block is left. Raises PineError if it is full."""
        with self._moved:
            if len(self._places) > self._most:
                raise PineError(
                    f"The line for the model is full: {self._most} wait already, as many as may. What you "
                    "typed is kept; try again in a minute."
                )
            place = Place(self)
            self._places.append(place)
        try:
            yield place
        finally:
            with self._moved:
                if place.began is not None:
                    self._lasted.append(time.monotonic() - place.began)
                self._places.remove(place)
                self._moved.notify_all()

    @property
    def waiting(self) -> int:
        """How many wait, without the one that has the model."""
        return max(0, len(self._places) - 1)

    def wait(self, place: "Place", seconds: float) -> int:
        """See Place.wait."""
        with self._moved:
            self._moved.wait_for(lambda: self._places[0] is place, seconds)
            return self._places.index(place)

    def seconds(self, ahead: int) -> float | None:
        """How long so many runs take, by those before them; None while there were none."""
        with self._moved:
            return ahead * sum(self._lasted) / len(self._lasted) if self._lasted else None


class Place:
    """A place in the line. began: when its turn came, in seconds of time.monotonic; None before."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self.began: float | None = None

    def wait(self, seconds: float) -> int:
        """How many are before this one, after so many seconds at most; 0 as soon as it is its turn."""
        ahead = self._line.wait(self, seconds)
        if not ahead and self.began is None:
            self.began = time.monotonic()
        return ahead

    def sentence(self, ahead: int) -> str:
        """How many are before this one, in words, and how long that may take."""
        seconds = self._line.seconds(ahead)
        guess = "" if seconds is None else f", about {max(1, round(seconds))} s"
        return f"Waiting for the model: {ahead} run{'s' if ahead != 1 else ''} before yours{guess}."
