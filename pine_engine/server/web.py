"""Parts of the page's server and of the OpenAI server: addresses, hosts, middleware, metrics, connections."""

import asyncio
import ipaddress
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import h11
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn import Server
from uvicorn.protocols.http.h11_impl import H11Protocol

import pine_engine as pine
from pine_engine.scheduling.runs import Runs

DEFAULT_PORTS = (80, 443)
DEFAULT_PORT_OF = {"http": 80, "https": 443}

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

Handler = Callable[[ASGIApp, Scope, Receive, Send], Awaitable[None]]
"""Function that answers one HTTP request or passes it on to the app."""


def is_in(host: str, networks: Iterable[Network]) -> bool:
    """Check whether an address is in one of the networks."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:  # a name, as tests have it
        return False
    return any(address in network for network in networks)


def sender_of(host: str) -> str:
    """Return the key of a client: its address, for IPv6 the network, because a client has 2**64 addresses."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    return host if address.version == 4 else str(ipaddress.ip_network((host, 64), strict=False))


def split_netloc(netloc: str) -> tuple[str, int | None]:
    """Return name and port of `name:port`, ("", None) if it is invalid.

    The name is in lower case, without brackets of IPv6. The port is None for 80 and 443.
    """
    try:
        parts = urlsplit(f"//{netloc}")
        return parts.hostname or "", None if parts.port in DEFAULT_PORTS else parts.port
    except ValueError:
        return "", None


_LABEL = r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?"
_HOST_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*\.?", re.IGNORECASE)


def is_host_name(name: str) -> bool:
    """Check whether requests can name a host so: by an address without brackets, or by a name in ASCII."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        is_number = name.rstrip(".").rpartition(".")[2].isdecimal()  # such as 300.1.1.1, which is no address
        return bool(_HOST_NAME.fullmatch(name)) and not is_number
    return True


def is_host_pattern(pattern: str) -> bool:
    """Check whether `is_among` can find a host in a pattern."""
    return pattern == "*" or is_host_name(pattern.replace("*", "x"))


def is_origin(origin: str) -> bool:
    """Check whether browsers send an origin so: scheme, host, and the port unless it is the default."""
    try:
        parts = urlsplit(origin)
        port = parts.port
    except ValueError:
        return False
    host = parts.hostname or ""
    netloc = f"[{host}]" if ":" in host else host
    netloc += "" if port is None else f":{port}"
    is_default = DEFAULT_PORT_OF.get(parts.scheme) == port is not None
    return origin == f"{parts.scheme}://{netloc}" and is_host_name(host) and not is_default


def is_among(name: str, patterns: Iterable[str]) -> bool:
    """Check whether a name matches an entry; "*." matches subdomains, "*" all."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def http_middleware(handle: Handler) -> Callable[[ASGIApp], ASGIApp]:
    """Return ASGI middleware that handles HTTP requests and passes on everything else."""

    def wrap(app: ASGIApp) -> ASGIApp:
        async def call(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http":
                await handle(app, scope, receive, send)
            else:
                await app(scope, receive, send)

        return call

    return wrap


def without_headers(scope: Scope, *names: bytes) -> Scope:
    """Return the request without these headers, whose names are in lower case."""
    kept = [(name, value) for name, value in scope["headers"] if name not in names]
    return {**scope, "headers": kept}


def limit_body(receive: Receive, max_bytes: int, seconds: float) -> Receive:
    """Return a receive function that raises HTTPException 413 or 408 for a body beyond its limits."""
    end = 0.0
    num_bytes, is_complete = 0, False

    async def receive_limited() -> Message:
        nonlocal end, num_bytes, is_complete
        if is_complete:  # the next message is a disconnect
            return await receive()
        end = end or time.monotonic() + seconds
        message: Message = {"more_body": True}
        try:
            async with asyncio.timeout(end - time.monotonic()):
                message = await receive()
        except TimeoutError:
            pass
        num_bytes += len(message.get("body", b""))
        is_complete = not message.get("more_body")
        # A busy loop calls timeouts late, or never for a body that keeps arriving: the clock decides.
        if not is_complete and time.monotonic() >= end:
            detail = f"Request timeout: body not received within {seconds:g} s. Send it again."
            raise HTTPException(408, detail)
        if num_bytes > max_bytes:
            raise HTTPException(413, f"Request too large (limit: {max_bytes:,} bytes). Send less data.")
        return message

    return receive_limited


def health_record(status: str, model: str | None, runs: Runs, uptime_s: float) -> dict[str, Any]:
    """Return the answer of /health, on the page and on the OpenAI server.

    Args:
        status: "ready", or the stage of a model that is not.
        model: Name of the model; None before it is loaded.
        runs: Runs of the process.
        uptime_s: Seconds since the start of the process.
    """
    return {
        "status": status,
        "model": model,
        "version": pine.__version__,
        "uptime_s": round(uptime_s, 1),
        "runs": runs.outcomes.total(),
        "running": runs.num_running,
        "failures": runs.outcomes["failed"],
        "waiting": runs.queue.waiting,
    }


def metrics_text(gauges: Mapping[str, float], counters: Mapping[str, tuple[str, Mapping[str, int]]]) -> str:
    """Return metrics in the text format of Prometheus.

    Args:
        gauges: Values by name.
        counters: Label, and counts by value of the label, by name.
    """
    lines = [f"# TYPE pine_{name} gauge\npine_{name} {value}" for name, value in gauges.items()]
    for name, (label, counts) in counters.items():
        lines.append(f"# TYPE pine_{name}_total counter")
        lines += [f'pine_{name}_total{{{label}="{key}"}} {count}' for key, count in counts.items()]
    return "\n".join(lines) + "\n"


# Limits of connections

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
