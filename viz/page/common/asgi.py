"""Helpers of the middleware."""

from collections.abc import Awaitable, Callable

from starlette.types import ASGIApp, Receive, Scope, Send

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
