"""Fair queue in front of the model: as many runs at a time as fit into its memory.

Unlike gradio's queue, it reports the place in the queue, can be left with Stop and limits each client.
"""

import heapq
import math
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pine_engine.errors import PineError

REMEMBERED = 10  # number of recent runs that the wait is estimated from
READY_S = 0.02  # seconds between two checks whether a waiting run is ready
USED_SHARE = 0.5  # of the memory that is free without the active runs, for these
KNOWN = 1000  # maximum number of clients and addresses with a time of their last run
KEPT = "Your input is kept. Try again in a minute."


class QueueFullError(PineError):
    """There is no place in the queue, or no longer."""


@dataclass(frozen=True)
class Client:
    """Client for which something is computed."""

    address: str = ""
    page: str = ""  # session of an open page; "" for a script

    @property
    def name(self) -> str:
        """Return the key of the client: its session, or its address for scripts."""
        return self.page or self.address


ANONYMOUS = Client()


@dataclass(eq=False)
class Ticket:
    """Place in a queue."""

    queue: "FairQueue"
    client: Client
    is_ready: Callable[[], bool]
    follow: Callable[[], object]  # attach the run to an equal active one and return that; None without one
    measure: Callable[[], float]  # return the memory of the run in bytes; infinity while it is unknown
    num_bytes: float | None = (
        None  # memory of the run, None before it is measured; infinity: it has to be alone
    )
    is_measuring: bool = False  # True while `measure` is called; others pass the run then
    computation: object = None  # computation of the run and of its followers, once it is known
    began: float | None = None  # time of the start of the run, in seconds of time.monotonic(); None before
    is_follower: bool = False  # True if the run is attached to another one

    def wait(self, seconds: float) -> int:
        """Wait up to `seconds` and return the number of runs ahead; 0 once it is the turn of this run.

        Raises QueueFullError if the run was removed from the queue.
        """
        self.update_size()
        return self.queue._wait(self, seconds)

    def update_size(self) -> None:
        """Measure the run if its memory is unknown, so that others can start beside it."""
        if self.num_bytes is None or self.num_bytes == math.inf:
            self.is_measuring = self.num_bytes is None
            try:
                self.num_bytes = self.measure()
            finally:
                self.is_measuring = False
                self.queue.wake()

    @property
    def can_start(self) -> bool:
        """True if the run starts when it is its turn."""
        return not self.is_measuring and self.is_ready()

    def sentence(self, ahead: int) -> str:
        """Describe the number of runs ahead and the estimated wait."""
        seconds = self.queue.seconds(ahead)
        guess = "" if seconds is None else f" (about {max(1, round(seconds))} s)"
        return f"Queued: {ahead} run{'s' if ahead != 1 else ''} ahead of you{guess}."


class FairQueue:
    """Runs that wait for the model, and the active ones with their followers.

    The next run starts once fewer than `max_active` runs are active and its memory is free; no other run
    passes it. Addresses take turns, and so do the clients of an address; later runs of a client
    wait behind first runs of others. While other addresses wait, an address starts no run beyond half of the
    active ones. `share` limits the runs of a client, and scripts to half of the queue.
    If the queue is full, the address with most runs loses one to an address with fewer. A run that can
    follow an active one does not wait and takes no place; the memory is free after the last follower.
    """

    def __init__(
        self,
        most: int,
        share: int | None = None,
        *,
        max_active: int = 1,
        free_memory: Callable[[], float] = lambda: 0.0,
        what: str = "for the model",
        advice: str = KEPT,
    ) -> None:
        self._most = most
        self._what = what
        self._advice = advice
        self._share = share
        self.max_active = max_active
        self._free_memory = free_memory
        self._moved = threading.Condition()
        self._tickets: list[Ticket] = []
        self._turns: OrderedDict[str, int] = OrderedDict()
        self._taken = 0
        self._lasted: deque[float] = deque(maxlen=REMEMBERED)

    @contextmanager
    def join(
        self,
        client: Client = ANONYMOUS,
        is_ready: Callable[[], bool] = lambda: True,
        follow: Callable[[], object] = lambda: None,
        measure: Callable[[], float] = lambda: math.inf,
    ) -> Iterator[Ticket]:
        """Enter the queue while the block runs; runs that are not ready let others pass.

        `follow` attaches the run to an equal active one and returns that; `wake` calls it again. `measure`
        returns the memory of the run in bytes, infinity for one that has to be alone, or while it is unknown;
        it is first called by `Ticket.wait`, in the place of the run. Raises QueueFullError if there is none.
        """
        ticket = Ticket(self, client, is_ready, follow, measure)
        with self._moved:
            self._check_share(client)
            is_follower = self._can_follow(ticket)
            self._tickets.append(ticket)
            if not is_follower:
                self._make_room(ticket)
        try:
            yield ticket
        finally:
            with self._moved:
                if ticket.began is not None and not ticket.is_follower:
                    self._lasted.append(time.monotonic() - ticket.began)
                if ticket in self._tickets:
                    self._tickets.remove(ticket)
                self._moved.notify_all()

    @property
    def waiting(self) -> int:
        """Return the number of waiting runs."""
        return len(self._behind)

    @property
    def is_awaited(self) -> bool:
        """True if the run of a client that listens waits for a place."""
        with self._moved:
            return any(ticket.is_ready() for ticket in self._behind)

    def wake(self) -> None:
        """Let waiting runs check at once if they can follow the current one."""
        with self._moved:
            self._moved.notify_all()

    def _wait(self, ticket: Ticket, seconds: float) -> int:
        end = time.monotonic() + seconds
        with self._moved:
            while ticket in self._tickets:
                is_ready = ticket.is_ready()  # first, because the order of a long queue takes time
                can_end = is_ready and (not self._ahead(ticket) or self._can_follow(ticket))
                if can_end or (left := end - time.monotonic()) <= 0:
                    break
                self._moved.wait(left if is_ready else min(left, READY_S))
            if ticket not in self._tickets:
                raise QueueFullError(
                    f"Your run was removed from the queue {self._what}, which is full: others have fewer "
                    f"runs in it. {self._advice}"
                )
            ahead = self._ahead(ticket)
            if not ahead and ticket.began is None:
                ticket.began = time.monotonic()
                self._take_turn(ticket)
            return ahead

    def seconds(self, ahead: int) -> float | None:
        """Estimate the time until this many runs have ended or started; None before the first run.

        A run is expected to take as long as the last ones, and one that has taken longer as long again.
        """
        with self._moved:
            if not self._lasted:
                return None
            mean, now = sum(self._lasted) / len(self._lasted), time.monotonic()
            ages = [now - began for began in self._starts.values()]
        ends = [mean - age if age < mean else age for age in ages] or [0.0]
        heapq.heapify(ends)
        for _ in range(ahead - len(ages)):
            heapq.heapreplace(ends, ends[0] + mean)
        return ends[0]

    @property
    def _starts(self) -> dict[int, float]:
        """Return the time of the start of each active computation."""
        starts: dict[int, float] = {}
        for ticket in self._tickets:
            if ticket.began is not None:
                key = id(ticket.computation or ticket)
                starts[key] = min(ticket.began, starts.get(key, math.inf))
        return starts

    @property
    def _sizes(self) -> dict[int, float]:
        """Return the memory of each active computation."""
        active = [ticket for ticket in self._tickets if ticket.began is not None]
        return {id(ticket.computation or ticket): ticket.num_bytes or 0.0 for ticket in active}

    @property
    def _waiting(self) -> list[Ticket]:
        """Waiting runs, including the next one."""
        return [ticket for ticket in self._tickets if ticket.began is None]

    @property
    def _behind(self) -> list[Ticket]:
        """Runs that cannot start now, without the next one if no run is active."""
        order = self._order()
        return order[max(self._num_next(order), not self._sizes) :]

    def _num_next(self, order: Sequence[Ticket]) -> int:
        """Return the number of runs that can start now, the first in this order."""
        active = self._sizes.values()
        num_next, num_bytes = 0, 0.0
        for ticket in order[: max(0, self.max_active - len(active))]:
            num_bytes += ticket.num_bytes or 0.0
            # As if the active runs have allocated their memory.
            num_free_bytes = USED_SHARE * self._free_memory() - (1 - USED_SHARE) * sum(active)
            is_alone = not active and not num_next
            if not ticket.can_start or not (is_alone or num_bytes <= num_free_bytes):
                break
            num_next += 1
        return num_next

    def _can_follow(self, ticket: Ticket) -> bool:
        """Attach a waiting run to an active one, if possible; there are as many followers as places."""
        num_followers = sum(other.is_follower for other in self._tickets)
        if ticket.began is None and num_followers < self._most and ticket.is_ready():
            ticket.computation = ticket.follow()
            if ticket.computation:
                ticket.is_follower, ticket.began = True, time.monotonic()
        return ticket.is_follower

    def _check_share(self, client: Client) -> None:
        """Raise QueueFullError if this client has too many runs."""
        own = [ticket for ticket in self._tickets if ticket.client.name == client.name]
        if client != ANONYMOUS and self._share is not None and len(own) >= self._share:
            raise QueueFullError(
                f"Too many runs: got {len(own)} of one page, or of the scripts of one address. Wait until "
                "one has ended."
            )

    def _make_room(self, ticket: Ticket) -> None:
        """Remove a run if the queue is full. Raises QueueFullError if that is this one."""
        client, behind = ticket.client, self._behind
        scripts = [other for other in behind if not other.client.page]
        is_limited = client != ANONYMOUS and self._share is not None and not client.page
        if is_limited and len(scripts) > max(1, self._most // 2):
            self._tickets.remove(ticket)
            raise QueueFullError(
                f"The queue {self._what} is full for scripts: {len(scripts) - 1} waiting, and the other "
                f"places are for open pages. {self._advice}"
            )
        if len(behind) <= self._most:
            return
        others = [other for other in self._waiting if other is not ticket]
        heaviest = max(
            others, key=lambda other: (self._count(other.client), not other.client.page), default=None
        )
        if heaviest is None or self._count(heaviest.client) <= self._count(client):
            self._tickets.remove(ticket)
            raise QueueFullError(f"The queue {self._what} is full: {self._most} waiting. {self._advice}")
        last = [other for other in others if other.client.address == heaviest.client.address][-1]
        self._tickets.remove(last)
        self._moved.notify_all()

    def _count(self, client: Client) -> int:
        """Count the places of the address of a client."""
        own = [ticket for ticket in self._tickets if ticket.client.address == client.address]
        return sum(not ticket.is_follower for ticket in own)

    def _ahead(self, ticket: Ticket) -> int:
        """Count the runs ahead of this one."""
        if ticket.began is not None:
            return 0
        order = self._order()
        place = order.index(ticket)
        if place < self._num_next(order):
            return 0
        return len(self._sizes) + place + (not ticket.is_ready())

    def _order(self) -> list[Ticket]:
        """Return the waiting runs in the order in which they start."""
        waiting = self._waiting
        is_ready = {ticket: ticket.can_start for ticket in waiting}
        turns, ordered = dict(self._turns), []
        active = [ticket for ticket in self._tickets if ticket.began is not None and not ticket.is_follower]
        num_active = Counter(ticket.client.address for ticket in active)
        num_free = self.max_active - len(active)
        max_of_address = self.max_active // 2 or math.inf  # with one place, turns suffice
        for turn in range(self._taken + 1, self._taken + 1 + len(waiting)):
            first = min(
                waiting,  # of several equal ones the first that came
                key=lambda ticket: (
                    not is_ready[ticket],
                    num_active[ticket.client.address] >= max_of_address,
                    turns.get(ticket.client.address, 0),
                    turns.get(ticket.client.name, 0),
                ),
            )
            waiting.remove(first)
            ordered.append(first)
            turns[first.client.address] = turns[first.client.name] = turn
            num_active[first.client.address] += len(ordered) <= num_free
        return ordered

    def _take_turn(self, ticket: Ticket) -> None:
        self._tickets.remove(ticket)
        self._tickets.insert(0, ticket)
        self._taken += 1
        for name in (ticket.client.address, ticket.client.name):
            self._turns[name] = self._taken
            self._turns.move_to_end(name)
        while len(self._turns) > KNOWN:
            self._turns.popitem(last=False)
