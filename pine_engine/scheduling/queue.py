"""Fair queue for the model: runs start while their memory is free.

Unlike the queue of gradio, it reports the place of a run, removes a stopped run, and limits each client.
"""

import heapq
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any

from pine_engine.errors import PineError
from pine_engine.scheduling.shared import SharedRun
from pine_engine.scheduling.turns import ANONYMOUS, Client, Turns

NUM_RECENT_RUNS = 10  # number of runs that the wait is estimated from
CHECK_S = 0.02  # seconds between two checks whether the client of a waiting run is listening
USED_SHARE = 0.5  # of the memory that is free without the active runs, for these
RETRY_ADVICE = "Your input is kept. Try again in a minute."


class QueueFullError(PineError):
    """There is no place in the queue, or no longer."""


class Size(Enum):
    """State of the measurement of the memory that a run takes."""

    UNMEASURED = "unmeasured"
    MEASURING = "measuring"  # others pass the run
    UNKNOWN = "unknown"  # the run is computed alone, unless a later measurement succeeds
    KNOWN = "known"


@dataclass(eq=False)
class Ticket:
    """Place of a run in a queue.

    Attributes:
        queue: Queue that the run is in.
        client: Client of the run.
        is_listening: Return True if the client waits for the run.
        request: Key that equal runs have in common; None for a run that is computed alone.
        measure: Return the memory of the run in bytes; None while it is unknown.
        size: State of the measurement.
        num_bytes: Memory of the run in bytes, infinity for a run of unknown size that has to be alone.
        computation: Computation of the run and of its followers; None before it starts.
        is_follower: True if an equal run has started the computation.
        began: Start of the run, in seconds of time.monotonic(); None while it waits.
    """

    queue: "FairQueue"
    client: Client
    is_listening: Callable[[], bool]
    request: object
    measure: Callable[[], float | None]
    size: Size = Size.UNMEASURED
    num_bytes: float = 0.0
    computation: SharedRun[Any] | None = None
    is_follower: bool = False
    began: float | None = None

    def wait(self, seconds: float) -> int:
        """Wait up to `seconds` and return the number of runs ahead; 0 once it is the turn of this run.

        Raises QueueFullError if the run was removed from the queue.
        """
        self._measure()
        return self.queue._wait(self, seconds)

    def start(self, computation: SharedRun[Any]) -> SharedRun[Any]:
        """Return the computation of an equal active run, else this one, which equal runs can follow now."""
        self._measure()  # now that the model is loaded
        with self.queue._changed:
            if not self.queue._follow_equal(self):
                self.computation = computation
            self.queue._changed.notify_all()
        return self.computation or computation

    def sentence(self, ahead: int) -> str:
        """Describe the number of runs ahead and the estimated wait."""
        seconds = self.queue.seconds(ahead)
        guess = "" if seconds is None else f" (about {max(1, round(seconds))} s)"
        return f"Queued: {ahead} run{'s' if ahead != 1 else ''} ahead of you{guess}."

    @property
    def can_start(self) -> bool:
        """True if the run starts when it is its turn."""
        return self.size is not Size.MEASURING and self.is_listening()

    def _measure(self) -> None:
        """Measure the memory of the run if it is unknown, so that others can start beside it."""
        if self.size is Size.KNOWN:
            return
        if self.size is Size.UNMEASURED:
            self.size = Size.MEASURING
        num_bytes = None
        try:
            num_bytes = self.measure()
        finally:
            with self.queue._changed:
                self.size = Size.UNKNOWN if num_bytes is None else Size.KNOWN
                self.num_bytes = math.inf if num_bytes is None else num_bytes
                self.queue._changed.notify_all()


class FairQueue:
    """Runs that wait for the model, and the active ones with their followers.

    The next run starts once fewer than `max_active` runs are active and its memory is free; no later run
    starts before it. Addresses take turns, and so do the clients of an address; later runs of a client
    wait behind first runs of others. While other addresses wait, an address starts no run beyond half of the
    active ones. If the queue is full, the address with most runs loses one to an address with fewer. A run
    that can follow an active one does not wait and takes no place; memory is free after the last follower.

    Args:
        max_waiting: Maximum number of waiting runs, and of followers. Scripts get half of the places.
        max_runs_per_client: Maximum number of runs of a client, None for no limit.
        max_active: Maximum number of active computations.
        free_memory: Return the free memory in bytes.
        what: Purpose of the queue in messages.
        advice: End of the messages about a full queue.
    """

    def __init__(
        self,
        max_waiting: int,
        max_runs_per_client: int | None = None,
        *,
        max_active: int = 1,
        free_memory: Callable[[], float] = lambda: 0.0,
        what: str = "for the model",
        advice: str = RETRY_ADVICE,
    ) -> None:
        self._max_waiting = max_waiting
        self._what = what
        self._advice = advice
        self._max_runs_per_client = max_runs_per_client
        self.max_active = max_active
        self._free_memory = free_memory
        self._changed = threading.Condition()
        self._tickets: list[Ticket] = []
        self._turns = Turns()
        self._durations: deque[float] = deque(maxlen=NUM_RECENT_RUNS)

    @contextmanager
    def join(
        self,
        client: Client = ANONYMOUS,
        is_listening: Callable[[], bool] = lambda: True,
        request: object = None,
        measure: Callable[[], float | None] = lambda: None,
    ) -> Iterator[Ticket]:
        """Enter the queue while the block runs, and leave its computation before the queue.

        Args:
            client: Client of the run.
            is_listening: Return True if the client waits for the run; other runs pass one of another client.
            request: Key that equal runs have in common; None for a run that is computed alone.
            measure: Return the memory of the run in bytes; None while it is unknown, for a run that has to be
                alone. First called by `Ticket.wait`, when the run has its place.

        Raises:
            QueueFullError: If there is no place.
        """
        ticket = Ticket(self, client, is_listening, request, measure)
        with self._changed:
            self._check_share(client)
            is_follower = self._can_follow(ticket)
            self._tickets.append(ticket)
            if not is_follower:
                self._make_room(ticket)
        try:
            yield ticket
        finally:
            try:
                if ticket.computation:  # the model stops before the next run starts
                    ticket.computation.leave()
            finally:
                self._remove(ticket)

    def _remove(self, ticket: Ticket) -> None:
        with self._changed:
            if ticket.began is not None and not ticket.is_follower:
                self._durations.append(time.monotonic() - ticket.began)
            if ticket in self._tickets:
                self._tickets.remove(ticket)
            self._changed.notify_all()

    @property
    def waiting(self) -> int:
        """Return the number of waiting runs."""
        return len(self._behind)

    @property
    def is_awaited(self) -> bool:
        """True if a run waits for a place, and its client listens."""
        with self._changed:
            return any(ticket.is_listening() for ticket in self._behind)

    def _wait(self, ticket: Ticket, seconds: float) -> int:
        end = time.monotonic() + seconds
        with self._changed:
            while ticket in self._tickets:
                is_listening = ticket.is_listening()  # first, because the order of a long queue takes time
                can_end = is_listening and (not self._ahead(ticket) or self._can_follow(ticket))
                if can_end or (left := end - time.monotonic()) <= 0:
                    break
                self._changed.wait(left if is_listening else min(left, CHECK_S))
            if ticket not in self._tickets:
                raise QueueFullError(
                    f"Your run was removed from the queue {self._what}, which is full: others have fewer "
                    f"runs in it. {self._advice}"
                )
            ahead = self._ahead(ticket)
            if not ahead and ticket.began is None:
                ticket.began = time.monotonic()
                self._turns.take(ticket.client)
            return ahead

    def seconds(self, ahead: int) -> float | None:
        """Estimate the seconds until this many runs have ended or started; None before a run has ended.

        A run is expected to take the mean of the last ones. One that has taken longer is expected to take its
        age again.
        """
        with self._changed:
            if not self._durations:
                return None
            mean, now = sum(self._durations) / len(self._durations), time.monotonic()
            ages = [now - began for began in self._starts.values()]
        ends = [mean - age if age < mean else age for age in ages] or [0.0]
        heapq.heapify(ends)
        for _ in range(ahead - len(ages)):
            heapq.heapreplace(ends, ends[0] + mean)
        return ends[0]

    @property
    def _starts(self) -> dict[int, float]:
        """Return the start of each active computation, in seconds of time.monotonic()."""
        starts: dict[int, float] = {}
        for ticket in self._tickets:
            if ticket.began is not None:
                key = id(ticket.computation or ticket)
                starts[key] = min(ticket.began, starts.get(key, math.inf))
        return starts

    @property
    def _sizes(self) -> dict[int, float]:
        """Return the memory of each active computation, in bytes."""
        active = [ticket for ticket in self._tickets if ticket.began is not None]
        return {id(ticket.computation or ticket): ticket.num_bytes for ticket in active}

    @property
    def _waiting(self) -> list[Ticket]:
        """Return the waiting runs, including the next one."""
        return [ticket for ticket in self._tickets if ticket.began is None]

    @property
    def _behind(self) -> list[Ticket]:
        """Return the runs that cannot start now; the next run is not one of them if no run is active."""
        order = self._order()
        return order[max(self._num_next(order), not self._sizes) :]

    def _num_next(self, order: Sequence[Ticket]) -> int:
        """Return the number of runs that can start now, the first in this order."""
        active = self._sizes.values()
        num_next, num_bytes = 0, 0.0
        for ticket in order[: max(0, self.max_active - len(active))]:
            num_bytes += ticket.num_bytes
            # Subtract the memory of active runs, which they may not have allocated yet.
            num_free_bytes = USED_SHARE * self._free_memory() - (1 - USED_SHARE) * sum(active)
            is_alone = not active and not num_next
            if not ticket.can_start or not (is_alone or num_bytes <= num_free_bytes):
                break
            num_next += 1
        return num_next

    def _can_follow(self, ticket: Ticket) -> bool:
        """Attach a waiting run to an equal active one, up to the maximum; return True for a follower."""
        num_followers = sum(other.is_follower for other in self._tickets)
        can_follow = ticket.began is None and num_followers < self._max_waiting and ticket.is_listening()
        if can_follow and self._follow_equal(ticket):
            ticket.began = time.monotonic()
        return ticket.is_follower

    def _follow_equal(self, ticket: Ticket) -> bool:
        """Attach a run to an equal active one, whose memory it shares; return False without one."""
        if ticket.request is not None:
            for other in self._tickets:
                if other.computation and other.computation.subscribe(ticket.request):
                    ticket.computation, ticket.is_follower = other.computation, True
                    ticket.size, ticket.num_bytes = other.size, other.num_bytes
                    break
        return ticket.is_follower

    def _check_share(self, client: Client) -> None:
        """Raise QueueFullError if the client has too many runs."""
        most, count = self._max_runs_per_client, sum(one.client.name == client.name for one in self._tickets)
        if client != ANONYMOUS and most is not None and count >= most:
            raise QueueFullError(
                f"Too many runs: got {count} of one page, or of the scripts of one address. Wait until "
                "one has ended."
            )

    def _make_room(self, ticket: Ticket) -> None:
        """Remove a run if the queue is full. Raises QueueFullError if this run is removed."""
        client, behind = ticket.client, self._behind
        scripts = [other for other in behind if not other.client.page]
        is_limited = client != ANONYMOUS and self._max_runs_per_client is not None and not client.page
        if is_limited and len(scripts) > max(1, self._max_waiting // 2):
            self._tickets.remove(ticket)
            raise QueueFullError(
                f"The queue {self._what} is full for scripts: {len(scripts) - 1} waiting, and the other "
                f"places are for open pages. {self._advice}"
            )
        if len(behind) <= self._max_waiting:
            return
        others = [other for other in self._waiting if other is not ticket]
        heaviest = max(
            others, key=lambda other: (self._count(other.client), not other.client.page), default=None
        )
        if heaviest is None or self._count(heaviest.client) <= self._count(client):
            self._tickets.remove(ticket)
            raise QueueFullError(
                f"The queue {self._what} is full: {self._max_waiting} waiting. {self._advice}"
            )
        last = [other for other in others if other.client.address == heaviest.client.address][-1]
        self._tickets.remove(last)
        self._changed.notify_all()

    def _count(self, client: Client) -> int:
        """Return the number of places that the address of a client has."""
        runs = [ticket for ticket in self._tickets if ticket.client.address == client.address]
        return sum(not ticket.is_follower for ticket in runs)

    def _ahead(self, ticket: Ticket) -> int:
        """Return the number of runs ahead of this one."""
        if ticket.began is not None:
            return 0
        order = self._order()
        place = order.index(ticket)
        if place < self._num_next(order):
            return 0
        return len(self._sizes) + place + (not ticket.is_listening())

    def _order(self) -> list[Ticket]:
        """Return the waiting runs in the order in which they start."""
        waiting = self._waiting
        clients = [(ticket.client, ticket.can_start) for ticket in waiting]
        active = [one.client for one in self._tickets if one.began is not None and not one.is_follower]
        return [waiting[index] for index in self._turns.order(clients, active, self.max_active)]
