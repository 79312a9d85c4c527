"""Parts of the page's server and of the OpenAI server: addresses, host names, middleware, metrics."""

import asyncio
import ipaddress
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

DEFAULT_PORTS = (80, 443)

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
