"""ASGI middleware of HTTP requests, and limits of their bodies."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

Handler = Callable[[ASGIApp, Scope, Receive, Send], Awaitable[None]]
"""Function that answers one HTTP request or passes it on to the app."""


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


def replay(body: bytes, receive: Receive) -> Receive:
    """Return a receive function that returns a body again, which has been received to its end."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return messages.pop() if messages else await receive()

    return receive_again
