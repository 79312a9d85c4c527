"""The words of ASGI, in which the server and what stands before gradio speak."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


def without_headers(scope: Scope, *names: bytes) -> Scope:
    """The request without these headers, which are given in lower case."""
    kept = [(name, value) for name, value in scope["headers"] if name not in names]
    return {**scope, "headers": kept}
