"""How many connections are open at once, and how long one may take to say what it wants."""

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Any

import h11
from uvicorn import Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from viz.page.common.addresses import Network, is_in, sender_of

REQUEST_S = 15.0
"""Seconds in which the head of a request has to come; its body has a time of its own, see front_door.py."""

SHARE = 4
"""One sender may have one part in so many of all connections, unless it is a proxy."""


class ImpatientProtocol(H11Protocol):
    """uvicorn's, which waits for ever for a request that has begun."""

    _deadline: asyncio.TimerHandle | None = None

    def __init__(self, *arguments: Any, proxies: Iterable[Network] = (), **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._proxies = proxies

    def connection_made(self, transport: Any) -> None:
        """A connection was opened. One too many of its address is closed at once."""
        super().connection_made(transport)
        most = self.limit_concurrency
        if most is not None and self.client is not None and not is_in(self.client[0], self._proxies):
            same = sum(_sender(other) == _sender(self) for other in self.connections)
            if same > most // SHARE:
                transport.abort()
                return
        self._watch()

    def data_received(self, data: bytes) -> None:
        """More of a request has come."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """It was closed."""
        super().connection_lost(exc)
        self._stop_watching()

    def _watch(self) -> None:
        """Closes the connection in a while if the request that it waits for has not come by then."""
        if self.conn.their_state is not h11.IDLE or self.timeout_keep_alive_task is not None:
            self._stop_watching()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(REQUEST_S, self.transport.abort)

    def _stop_watching(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def _sender(connection: Any) -> str | None:
    client = getattr(connection, "client", None)
    return sender_of(client[0]) if client else None


def limit_connections(server: Server, most: int, proxies: Iterable[Network] = ()) -> None:
    """Sets the limits of a running server, for connections from now on.

    most: connections at once. proxies: through whom many visitors come, which need no share.
    """
    protocol: Any = partial(ImpatientProtocol, proxies=proxies)
    server.config.limit_concurrency = most
    server.config.http_protocol_class = protocol
