"""Rate limit of page events, API calls, tool calls and logins: a token bucket for each address."""

import asyncio
import math
import re
import time
from dataclasses import dataclass, field

from starlette.responses import JSONResponse

from viz.page.common.address_table import AddressTable
from viz.page.common.addresses import sender_of
from viz.page.common.asgi import App, Receive, Scope, Send
from viz.page.jobs.presence import CALLER, MCP

EVENT = re.compile(r"/gradio_api/(?:queue/join|(?:run|api)/[^/]+|call/.+)/?", re.DOTALL)
"""Paths of gradio that accept an event."""

LOGIN = re.compile(r"/login/?")

PERIOD_S = 60.0
"""Seconds in which an empty bucket is full again."""

MAX_CONCURRENT_EVENTS = 8
"""Concurrent event requests of one address; others wait."""

TOO_MANY_REQUESTS = 429


@dataclass
class TokenBucket:
    """A bucket that is filled within PERIOD_S."""

    capacity: float
    tokens: float
    updated: float
    """In seconds of time.monotonic()."""

    def take(self) -> float:
        """Take a token. Return the seconds until there is one, 0 if there was."""
        now = time.monotonic()
        rate = self.capacity / PERIOD_S
        self.tokens = min(self.capacity, self.tokens + (now - self.updated) * rate)
        self.updated = now
        if self.tokens < 1:
            return (1 - self.tokens) / rate
        self.tokens -= 1
        return 0.0


@dataclass
class _Client:
    bucket: TokenBucket
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_CONCURRENT_EVENTS))


class RateLimitMiddleware:
    """ASGI middleware that rejects requests beyond the rate of their address.

    PresenceMiddleware comes first and removes a forged CALLER header: requests with it are internal requests
    of tool calls that were counted already.
    """

    def __init__(self, app: App, max_requests: int) -> None:
        self._app, self._max_requests = app, max_requests
        self._clients = AddressTable(self._new_client, keep_s=PERIOD_S)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer with status 429."""
        if scope["type"] != "http" or scope["method"] != "POST" or not scope.get("client"):
            await self._app(scope, receive, send)
            return
        path = scope["path"]
        is_tool_call, is_event = MCP.fullmatch(path), EVENT.fullmatch(path)
        is_internal = not is_tool_call and any(name == CALLER for name, _ in scope["headers"])
        if is_internal or not (is_tool_call or is_event or LOGIN.fullmatch(path)):
            await self._app(scope, receive, send)
            return
        client = self._clients.use(sender_of(scope["client"][0]))
        if wait_s := client.bucket.take():
            sentence = f"Too many requests from your address: more than {self._max_requests:,} in a minute."
            await rejection(sentence, wait_s)(scope, receive, send)
        elif is_event:
            async with client.slots:
                await self._app(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _new_client(self) -> _Client:
        return _Client(TokenBucket(self._max_requests, self._max_requests, time.monotonic()))


def rejection(sentence: str, wait_s: float) -> JSONResponse:
    """Return a response with status 429 and the seconds to wait."""
    seconds = math.ceil(wait_s)
    detail = f"{sentence} Try again in {seconds} s."
    return JSONResponse({"detail": detail}, TOO_MANY_REQUESTS, headers={"Retry-After": str(seconds)})
