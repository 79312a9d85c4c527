"""Limits of connections: time of a request's head, chunks of its body, and connections of one address."""

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Any

import h11
from uvicorn import Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from pine_engine.web.addresses import Network, is_in, sender_of

REQUEST_S = 15.0  # seconds in which the head of a request must arrive; the body has a limit of its own
SHARE = 4  # one client may have this fraction (1/n) of all connections, unless it is a proxy
FREE_CHUNKS, BYTES_PER_CHUNK = 64, 512  # chunks of any body, and bytes that allow another one


class TooManyChunksError(Exception):
    """The chunks of a body are too small: each takes as long to parse as a kilobyte of the body."""


class ChunkCountingConnection(h11.Connection):
    """h11's parser, with a limit of the number of chunks of a body."""

    _num_chunks = _num_bytes = 0

    def next_event(self) -> Any:
        """Return the next event. Raises TooManyChunksError."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._num_chunks = self._num_bytes = 0
        elif isinstance(event, h11.Data):
            self._num_chunks += event.chunk_start
            self._num_bytes += len(event.data)
            if self._num_chunks > FREE_CHUNKS + self._num_bytes // BYTES_PER_CHUNK:
                raise TooManyChunksError
        return event


class LimitedProtocol(H11Protocol):
    """uvicorn's protocol, with a timeout for incomplete request headers and a limit of chunks."""

    _deadline: asyncio.TimerHandle | None = None

    def __init__(self, *arguments: Any, proxies: Iterable[Network] = (), **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._proxies = proxies
        self.conn = ChunkCountingConnection(h11.SERVER, self.conn._max_incomplete_event_size)

    def connection_made(self, transport: Any) -> None:
        """Accept a connection, or close it if its address has too many."""
        super().connection_made(transport)
        most = self.limit_concurrency
        if most is not None and self.client is not None and not is_in(self.client[0], self._proxies):
            same = sum(_sender(other) == _sender(self) for other in self.connections)
            if same > most // SHARE:
                transport.abort()
                return
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Receive data of a request."""
        super().data_received(data)
        self._watch()

    def handle_events(self) -> None:
        """Handle the received events, and close the connection if a body has too many chunks."""
        try:
            super().handle_events()
        except TooManyChunksError:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a closed connection."""
        super().connection_lost(exc)
        self._stop_watching()

    def _watch(self) -> None:
        """Close the connection after the timeout unless a request has arrived."""
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
    """Set the limits of a server, which may run; proxies are exempt from the limit per address."""
    protocol: Any = partial(LimitedProtocol, proxies=proxies)
    server.config.limit_concurrency = most
    server.config.http = server.config.http_protocol_class = protocol
