"""State of each client address, in bounded memory."""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

MAX_ADDRESSES = 10_000
"""Maximum number of addresses; beyond it the least recently used ones are dropped."""

State = TypeVar("State")


class AddressTable(Generic[State]):
    """State of each client address that was used recently."""

    def __init__(self, create: Callable[[], State], *, keep_s: float) -> None:
        self._create, self._keep_s = create, keep_s
        self._states: OrderedDict[str, tuple[float, State]] = OrderedDict()  # least recently used first

    def __len__(self) -> int:
        return len(self._states)

    def use(self, address: str) -> State:
        """Return the state of an address and mark it as used now."""
        now = time.monotonic()
        while self._states and now - next(iter(self._states.values()))[0] > self._keep_s:
            self._states.popitem(last=False)
        state = self._states.pop(address)[1] if address in self._states else self._create()
        self._states[address] = (now, state)
        if len(self._states) > MAX_ADDRESSES:
            self._states.popitem(last=False)
        return state
