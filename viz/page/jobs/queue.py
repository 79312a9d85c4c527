"""The line in front of the model: one run at a time, and everybody in their turn.

It is ours and not gradio's, so that whoever waits is told how many are before them and can press Stop,
whoever may not is told so in a sentence, and nobody can fill it alone.
"""

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pine_engine.errors import PineError
from viz.page.jobs.presence import Visitor

REMEMBERED = 10
"""Runs of whose length the wait is guessed."""

READY_S = 0.02
"""How often it is looked whether who was not ready is by now: nobody tells."""

KNOWN = 1000
"""Names and addresses of which it is known when they last had the model."""

NOBODY = Visitor()

KEPT = "What you typed is kept"


class Line:
    """Who waits for the model, and who has it.

    Addresses take turns, and so do the visitors of one address; whoever comes twice waits behind those who
    come once. most: how many may wait. share: how many runs one visitor may have here, waiting or not, and
    scripts have half of the places then; None for as many as there is room for. what: they wait for, in
    sentences. In a full line the address that has most of it makes room for one that has less.
    """

    def __init__(self, most: int, share: int | None = None, *, what: str = "for the model") -> None:
        self._most = most
        self._what = what
        self._share = share
        self._moved = threading.Condition()
        self._places: list[Place] = []
        self._turns: OrderedDict[str, int] = OrderedDict()
        self._taken = 0
        self._lasted: deque[float] = deque(maxlen=REMEMBERED)

    @contextmanager
    def join(
        self, visitor: Visitor = NOBODY, is_ready: Callable[[], bool] = lambda: True
    ) -> Iterator["Place"]:
        """A place in the line until the block is left. Raises PineError if there is none.

        is_ready: whether they would use their turn now; whoever is not lets the others pass.
        """
        with self._moved:
            self._make_room(visitor)
            place = Place(self, visitor, is_ready)
            self._places.append(place)
        try:
            yield place
        finally:
            with self._moved:
                if place.began is not None:
                    self._lasted.append(time.monotonic() - place.began)
                if place in self._places:
                    self._places.remove(place)
                self._moved.notify_all()

    @property
    def waiting(self) -> int:
        """How many wait, without the one that has the model."""
        return max(0, len(self._places) - 1)

    def wait(self, place: "Place", seconds: float) -> int:
        """See Place.wait."""
        end = time.monotonic() + seconds
        with self._moved:
            while place in self._places and self._ahead(place) and (left := end - time.monotonic()) > 0:
                self._moved.wait(left if place.is_ready() else min(left, READY_S))
            if place not in self._places:
                raise PineError(
                    f"The line {self._what} is full, and others had fewer runs in it: yours gave up its "
                    f"place. {KEPT}; try again in a minute."
                )
            ahead = self._ahead(place)
            if not ahead and place.began is None:
                place.began = time.monotonic()
                self._take_turn(place)
            return ahead

    def seconds(self, ahead: int) -> float | None:
        """How long so many runs take, by those before them; None while there were none."""
        with self._moved:
            return ahead * sum(self._lasted) / len(self._lasted) if self._lasted else None

    def _make_room(self, visitor: Visitor) -> None:
        """Raises PineError if this visitor may not come now."""
        own = [place for place in self._places if place.visitor.name == visitor.name]
        share = None if visitor == NOBODY else self._share
        if share is not None and len(own) >= share:
            raise PineError(
                f"You have {len(own)} runs here already, as many as one page, or the scripts of one address, "
                "may have at once; wait until one of them has ended."
            )
        scripts = [place for place in self._places[1:] if not place.visitor.page]
        if share is not None and not visitor.page and len(scripts) >= max(1, self._most // 2):
            raise PineError(
                f"The line {self._what} is full: {len(scripts)} runs of scripts wait already, and the other "
                "places are kept for open pages; try again in a minute."
            )
        if len(self._places) <= self._most:
            return
        heaviest = max(
            (place for place in self._places if place.began is None),
            key=lambda place: (self._count(place.visitor), not place.visitor.page),
            default=None,
        )
        if heaviest is None or self._count(heaviest.visitor) <= self._count(visitor) + 1:
            raise PineError(
                f"The line {self._what} is full: {self._most} wait already, as many as may. {KEPT}; try "
                "again in a minute."
            )
        last = [place for place in self._places if place.visitor.address == heaviest.visitor.address][-1]
        self._places.remove(last)
        self._moved.notify_all()

    def _count(self, visitor: Visitor) -> int:
        """Places that the address of a visitor has."""
        return sum(place.visitor.address == visitor.address for place in self._places)

    def _ahead(self, place: "Place") -> int:
        """How many have the model before this one."""
        if place.began is not None:
            return 0
        running = sum(other.began is not None for other in self._places)
        return running + self._order().index(place) + (not place.is_ready())

    def _order(self) -> list["Place"]:
        """Those who wait, in the order in which they will have the model."""
        waiting = [place for place in self._places if place.began is None]
        turns, ordered = dict(self._turns), []
        for turn in range(self._taken + 1, self._taken + 1 + len(waiting)):
            first = min(
                waiting,  # of several equal ones the first that came
                key=lambda place: (
                    not place.is_ready(),
                    turns.get(place.visitor.address, 0),
                    turns.get(place.visitor.name, 0),
                ),
            )
            waiting.remove(first)
            ordered.append(first)
            turns[first.visitor.address] = turns[first.visitor.name] = turn
        return ordered

    def _take_turn(self, place: "Place") -> None:
        self._places.remove(place)
        self._places.insert(0, place)
        self._taken += 1
        for name in (place.visitor.address, place.visitor.name):
            self._turns[name] = self._taken
            self._turns.move_to_end(name)
        while len(self._turns) > KNOWN:
            self._turns.popitem(last=False)


class Place:
    """A place in the line. began: when its turn came, in seconds of time.monotonic(); None before."""

    def __init__(self, line: Line, visitor: Visitor, is_ready: Callable[[], bool]) -> None:
        self._line = line
        self.visitor = visitor
        self.is_ready = is_ready
        self.began: float | None = None

    def wait(self, seconds: float) -> int:
        """How many are before this one, after so many seconds at most; 0 as soon as it is its turn.

        Raises PineError if it had to make room.
        """
        return self._line.wait(self, seconds)

    def sentence(self, ahead: int) -> str:
        """How many are before this one, in words, and how long that may take."""
        seconds = self._line.seconds(ahead)
        guess = "" if seconds is None else f", about {max(1, round(seconds))} s"
        return f"Waiting for the model: {ahead} run{'s' if ahead != 1 else ''} before yours{guess}."
