"""ASGI types and helpers of the middleware."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


def without_headers(scope: Scope, *names: bytes) -> Scope:
    """Return the request without these headers, whose names are in lower case."""
    kept = [(name, value) for name, value in scope["headers"] if name not in names]
    return {**scope, "headers": kept}


async def read_body(receive: Receive) -> bytes | None:
    """Return the whole body of a request; None if the client disconnects before its end."""
    body, is_all = b"", False
    while not is_all:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        is_all = not message.get("more_body")
    return body


def replay(body: bytes, receive: Receive) -> Receive:
    """Return a receive function that replays a body and then continues with `receive`."""
    read: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return read.pop() if read else await receive()

    return again
