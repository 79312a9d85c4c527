"""Fair queue in front of the model: one run at a time.

Unlike gradio's queue, it reports the place in the queue, can be left with Stop and limits each client.
"""

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pine_engine.errors import PineError

REMEMBERED = 10  # number of recent runs that the wait is estimated from
READY_S = 0.02  # seconds between two checks whether a waiting run is ready
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
    follow: Callable[[], bool]  # attach the run to the active one and return True, if that is possible
    began: float | None = None  # time of the start of the run, in seconds of time.monotonic(); None before
    is_follower: bool = False  # True if the run is attached to another one

    def wait(self, seconds: float) -> int:
        """Wait up to `seconds` and return the number of runs ahead; 0 once it is the turn of this run.

        Raises QueueFullError if the run was removed from the queue.
        """
        return self.queue.wait(self, seconds)

    def sentence(self, ahead: int) -> str:
        """Describe the number of runs ahead and the estimated wait."""
        seconds = self.queue.seconds(ahead)
        guess = "" if seconds is None else f" (about {max(1, round(seconds))} s)"
        return f"Queued: {ahead} run{'s' if ahead != 1 else ''} ahead of you{guess}."


class FairQueue:
    """Runs that wait for the model, and the current one with its followers.

    Addresses take turns, and so do the clients of an address; later runs of a client wait behind first runs
    of others. `share` limits the runs of a client, and scripts to half of the queue. If the queue is full,
    the address with most runs loses one to an address with fewer. A run that can follow the current one does
    not wait and takes no place in the queue; the next run begins after the last follower.
    """

    def __init__(
        self, most: int, share: int | None = None, *, what: str = "for the model", advice: str = KEPT
    ) -> None:
        self._most = most
        self._what = what
        self._advice = advice
        self._share = share
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
        follow: Callable[[], bool] = lambda: False,
    ) -> Iterator[Ticket]:
        """Enter the queue while the block runs; runs that are not ready let others pass.

        `follow` attaches the run to the current one, if both are equal; `wake` calls it again. Raises
        QueueFullError if there is no place.
        """
        ticket = Ticket(self, client, is_ready, follow)
        with self._moved:
            self._check_share(client)
            if not self._can_follow(ticket):
                self._make_room(client)
            self._tickets.append(ticket)
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

    def wake(self) -> None:
        """Let waiting runs check at once if they can follow the current one."""
        with self._moved:
            self._moved.notify_all()

    def wait(self, ticket: Ticket, seconds: float) -> int:
        """Wait as Ticket.wait does."""
        end = time.monotonic() + seconds
        with self._moved:
            while (
                ticket in self._tickets
                and self._ahead(ticket)
                and not self._can_follow(ticket)
                and (left := end - time.monotonic()) > 0
            ):
                self._moved.wait(left if ticket.is_ready() else min(left, READY_S))
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
        """Estimate the duration of this many runs; None before the first run."""
        with self._moved:
            return ahead * sum(self._lasted) / len(self._lasted) if self._lasted else None

    @property
    def _is_running(self) -> bool:
        return any(ticket.began is not None for ticket in self._tickets)

    @property
    def _waiting(self) -> list[Ticket]:
        """Waiting runs, including the next one."""
        return [ticket for ticket in self._tickets if ticket.began is None]

    @property
    def _behind(self) -> list[Ticket]:
        """Runs behind the current one, or behind the next one if there is none."""
        return self._waiting[not self._is_running :]

    def _can_follow(self, ticket: Ticket) -> bool:
        """Attach a waiting run to the current one, if possible; there are as many followers as places."""
        num_followers = sum(other.is_follower for other in self._tickets)
        if ticket.began is None and num_followers < self._most and ticket.is_ready() and ticket.follow():
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

    def _make_room(self, client: Client) -> None:
        """Raise QueueFullError if this client cannot enter the queue."""
        scripts = [ticket for ticket in self._behind if not ticket.client.page]
        is_limited = client != ANONYMOUS and self._share is not None and not client.page
        if is_limited and len(scripts) >= max(1, self._most // 2):
            raise QueueFullError(
                f"The queue {self._what} is full for scripts: {len(scripts)} waiting, and the other "
                f"places are for open pages. {self._advice}"
            )
        if len(self._waiting) + self._is_running <= self._most:
            return
        heaviest = max(
            self._waiting,
            key=lambda ticket: (self._count(ticket.client), not ticket.client.page),
            default=None,
        )
        if heaviest is None or self._count(heaviest.client) <= self._count(client) + 1:
            raise QueueFullError(f"The queue {self._what} is full: {self._most} waiting. {self._advice}")
        last = [ticket for ticket in self._waiting if ticket.client.address == heaviest.client.address][-1]
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
        return self._is_running + self._order().index(ticket) + (not ticket.is_ready())

    def _order(self) -> list[Ticket]:
        """Return the waiting runs in the order in which they start."""
        waiting = self._waiting
        turns, ordered = dict(self._turns), []
        for turn in range(self._taken + 1, self._taken + 1 + len(waiting)):
            first = min(
                waiting,  # of several equal ones the first that came
                key=lambda ticket: (
                    not ticket.is_ready(),
                    turns.get(ticket.client.address, 0),
                    turns.get(ticket.client.name, 0),
                ),
            )
            waiting.remove(first)
            ordered.append(first)
            turns[first.client.address] = turns[first.client.name] = turn
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
