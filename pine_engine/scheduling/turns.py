"""Turns of clients: the fair order of waiting runs."""

import math
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MAX_CLIENTS = 1000  # maximum number of clients and addresses with a stored turn


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


class Turns:
    """Last turns of addresses and of their clients. Those that have waited for longest are next."""

    def __init__(self) -> None:
        self._turns: OrderedDict[str, int] = OrderedDict()
        self._num_turns = 0

    def take(self, client: Client) -> None:
        """Store that a run of the client starts now."""
        self._num_turns += 1
        for name in (client.address, client.name):
            self._turns[name] = self._num_turns
            self._turns.move_to_end(name)
        while len(self._turns) > MAX_CLIENTS:
            self._turns.popitem(last=False)

    def order(
        self, waiting: Sequence[tuple[Client, bool]], active: Iterable[Client], max_active: int
    ) -> list[int]:
        """Return the indices of waiting runs in the order in which they start.

        Args:
            waiting: Client of each waiting run in the order of arrival, and True if the run can start.
            active: Clients of active runs. An address that has half of `max_active` is last.
            max_active: Maximum number of active runs.
        """
        turns, order, left = dict(self._turns), list[int](), list(range(len(waiting)))
        num_active = Counter(client.address for client in active)
        num_free = max_active - num_active.total()
        max_of_address = max_active // 2 or math.inf  # with one place, turns suffice

        def key(index: int) -> tuple[bool, bool, int, int]:
            client, can_start = waiting[index]
            has_share = num_active[client.address] >= max_of_address
            return not can_start, has_share, turns.get(client.address, 0), turns.get(client.name, 0)

        for turn in range(self._num_turns + 1, self._num_turns + 1 + len(waiting)):
            first = min(left, key=key)  # of several equal ones the first that came
            left.remove(first)
            order.append(first)
            client, _ = waiting[first]
            turns[client.address] = turns[client.name] = turn
            num_active[client.address] += len(order) <= num_free
        return order
