"""Limits of one address: rate of requests and of logins, and events that wait or run."""

import asyncio
import json
import logging
import math
import re
import time
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pine_engine.server.web import sender_of
from viz.page.jobs.connection_tracker import CALLER, MCP

log = logging.getLogger("pine_explorer.logins")

EVENT = re.compile(r"/gradio_api/(?:queue/join|(?:run|api)/[^/]+|call/.+)/?", re.DOTALL)
"""Paths of gradio that accept an event."""

LOGIN = re.compile(r"/login/?")

MAX_ADDRESSES = 10_000
"""Maximum number of addresses with a state; beyond it the least recently used ones are dropped."""

MAX_REQUESTS, REQUESTS_S = 1200, 60.0  # requests of one address in this time, in seconds, or in one burst
MAX_LOGINS, LOGINS_S = 60, 600.0  # logins; several people may share the address
MAX_CONCURRENT_EVENTS = 8  # concurrent event requests of one address; others wait
MAX_PENDING_EVENTS = 80  # waiting and running events of one address; gradio starts all in order
RETRY_S = 10.0  # seconds after which an address with too many events should try again
WRONG_LOGIN = 400  # status of gradio for a wrong name or password, which are compared in constant time


class AddressLimits:
    """Middleware that limits requests, logins and pending events of each address.

    Requests with the CALLER header, which the connection tracker checks, are internal requests of tool calls
    that were counted already.
    """

    def __init__(self) -> None:
        self._requests_of = lru_cache(MAX_ADDRESSES)(lambda address: TokenBucket(MAX_REQUESTS, REQUESTS_S))
        self._logins_of = lru_cache(MAX_ADDRESSES)(lambda address: TokenBucket(MAX_LOGINS, LOGINS_S))
        self._events_of = lru_cache(MAX_ADDRESSES)(lambda _: asyncio.Semaphore(MAX_CONCURRENT_EVENTS))

    async def __call__(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer with status 429."""
        path = scope["path"]
        is_tool_call, is_event, is_login = (one.fullmatch(path) for one in (MCP, EVENT, LOGIN))
        is_internal = not is_tool_call and any(name == CALLER for name, _ in scope["headers"])
        is_limited = scope["method"] == "POST" and (is_tool_call or is_event or is_login)
        if is_internal or not is_limited or not scope.get("client"):
            await app(scope, receive, send)
            return
        address = sender_of(scope["client"][0])
        if wait_s := self._requests_of(address).take():
            sentence = f"Too many requests from your address: more than {MAX_REQUESTS:,} in a minute."
            await rejection(sentence, wait_s)(scope, receive, send)
        elif is_login and (wait_s := self._logins_of(address).take()):
            await rejection("Too many logins from your address.", wait_s)(scope, receive, send)
        elif is_login:
            await app(scope, receive, _log_failure(send, address))
        elif is_event and _num_pending(scope["app"].get_blocks(), address) >= MAX_PENDING_EVENTS:
            sentence = f"Too many events of your address wait or run: more than {MAX_PENDING_EVENTS}."
            await rejection(sentence, RETRY_S)(scope, receive, send)
        elif is_event:
            async with self._events_of(address):
                await app(scope, receive, send)
        else:
            await app(scope, receive, send)


class TokenBucket:
    """Rate limit: a number of tokens, which are refilled in some seconds."""

    def __init__(self, max_tokens: int, period_s: float) -> None:
        self._max_tokens, self._rate = max_tokens, max_tokens / period_s
        self._tokens, self._updated_at = float(max_tokens), time.monotonic()

    def take(self) -> float:
        """Take a token. Return the seconds until there is one, 0 if there was."""
        now = time.monotonic()
        self._tokens = min(self._max_tokens, self._tokens + (now - self._updated_at) * self._rate)
        self._updated_at = now
        if self._tokens < 1:
            return (1 - self._tokens) / self._rate
        self._tokens -= 1
        return 0.0


def _num_pending(page: Any, address: str) -> int:
    """Count the waiting and running events of an address in gradio's queue."""
    events = page._queue.event_ids_to_events.values()
    return sum(page.connections.address(event.request) == address for event in events)


def _log_failure(send: Send, address: str) -> Send:
    """Return a send function that logs a failed login."""

    async def send_and_log(message: Message) -> None:
        if message.get("status") == WRONG_LOGIN:
            now = datetime.now(UTC).isoformat(timespec="milliseconds")
            line = {"time": now, "operation": "login", "address": address, "outcome": "rejected"}
            log.info(json.dumps(line))
        await send(message)

    return send_and_log


def rejection(sentence: str, wait_s: float) -> JSONResponse:
    """Return a response with status 429 and the seconds to wait."""
    seconds = math.ceil(wait_s)
    detail = f"{sentence} Try again in {seconds} s."
    return JSONResponse({"detail": detail}, 429, headers={"Retry-After": str(seconds)})
