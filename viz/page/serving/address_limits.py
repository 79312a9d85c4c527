"""Limits of one address: rate of requests, concurrent events and failed logins."""

import asyncio
import json
import logging
import math
import re
import time
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pine_engine.server.web import sender_of
from viz.page.common.asgi import replay
from viz.page.jobs.connection_tracker import CALLER, MCP

log = logging.getLogger("pine_explorer.logins")

EVENT = re.compile(r"/gradio_api/(?:queue/join|(?:run|api)/[^/]+|call/.+)/?", re.DOTALL)
"""Paths of gradio that accept an event."""

LOGIN = re.compile(r"/login/?")

MAX_ADDRESSES = 10_000
"""Maximum number of addresses with a state; beyond it the least recently used ones are dropped."""

PERIOD_S = 60.0  # seconds in which an address may send the maximum number of requests
MAX_REQUESTS = 1200  # requests of one address in PERIOD_S, also in one burst
MAX_CONCURRENT_EVENTS = 8  # concurrent event requests of one address; others wait
MAX_PENDING_EVENTS = 80  # waiting and running events of one address; gradio starts all in order
RETRY_S = 10.0  # seconds after which an address with too many events should try again
FREE_FAILURES = 5  # failed logins of one address without a wait; several people may share the address
MAX_WAIT_S = 60.0  # longest wait after a failed login
KEEP_S = 600.0  # seconds without an attempt after which failed logins are forgotten
WRONG_LOGIN = 400  # status of gradio for a wrong name or password, which are compared in constant time


class AddressLimits:
    """Middleware that limits requests, pending events and failed logins of each address.

    A token bucket is filled with MAX_REQUESTS in PERIOD_S. After FREE_FAILURES failed logins in a row an
    address waits 1 s, then twice as long up to MAX_WAIT_S. Requests with the CALLER header, which the
    connection tracker checks, are internal requests of tool calls that were counted already.
    """

    def __init__(self) -> None:
        self._state_of = lru_cache(MAX_ADDRESSES)(lambda address: _AddressState())

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
        state = self._state_of(address)
        if wait_s := state.take():
            sentence = f"Too many requests from your address: more than {MAX_REQUESTS:,} in a minute."
            await rejection(sentence, wait_s)(scope, receive, send)
        elif is_event and _num_pending(scope["app"].get_blocks(), address) >= MAX_PENDING_EVENTS:
            sentence = f"Too many events of your address wait or run: more than {MAX_PENDING_EVENTS}."
            await rejection(sentence, RETRY_S)(scope, receive, send)
        elif is_login:
            body = await Request(scope, receive).body()  # before the lock, which a slow client would hold
            async with state.login:
                await _log_in(app, scope, replay(body, receive), send, address, state)
        elif is_event:
            async with state.events:
                await app(scope, receive, send)
        else:
            await app(scope, receive, send)


class _AddressState:
    """Token bucket and failed logins of one address; times are seconds of time.monotonic()."""

    def __init__(self) -> None:
        self.events = asyncio.Semaphore(MAX_CONCURRENT_EVENTS)
        self.login = asyncio.Lock()
        self.failures, self.next_login_at = 0, 0.0
        self._tokens = float(MAX_REQUESTS)
        self._updated_at = time.monotonic()

    def take(self) -> float:
        """Take a token. Return the seconds until there is one, 0 if there was."""
        now, rate = time.monotonic(), MAX_REQUESTS / PERIOD_S
        self._tokens = min(MAX_REQUESTS, self._tokens + (now - self._updated_at) * rate)
        self._updated_at = now
        if self._tokens < 1:
            return (1 - self._tokens) / rate
        self._tokens -= 1
        return 0.0

    def login_wait_s(self) -> float:
        """Return the seconds until the next login is allowed; at most 0 if it is."""
        wait_s = self.next_login_at - time.monotonic()
        if wait_s < -KEEP_S:
            self.failures = 0
        return wait_s

    def fail(self) -> None:
        """Count a failed login."""
        self.failures += 1
        excess = self.failures - FREE_FAILURES
        wait_s = min(MAX_WAIT_S, 2.0 ** min(excess, 10)) if excess >= 0 else 0.0
        self.next_login_at = time.monotonic() + wait_s


def _num_pending(page: Any, address: str) -> int:
    """Count the waiting and running events of an address in gradio's queue."""
    events = page._queue.event_ids_to_events.values()
    return sum(page.connections.address(event.request) == address for event in events)


async def _log_in(
    app: ASGIApp, scope: Scope, receive: Receive, send: Send, address: str, state: _AddressState
) -> None:
    """Pass a login on unless its address has to wait, and log a failure."""
    status = 0

    async def send_and_read(message: Message) -> None:
        nonlocal status
        status = message.get("status", status)
        await send(message)

    if (wait_s := state.login_wait_s()) > 0:
        await rejection("Too many failed logins from your address.", wait_s)(scope, receive, send)
        return
    await app(scope, receive, send_and_read)
    if status == WRONG_LOGIN:
        state.fail()
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = {"time": now, "operation": "login", "address": address, "outcome": "rejected"}
        log.info(json.dumps(line))
    elif 0 < status < WRONG_LOGIN:
        state.failures, state.next_login_at = 0, 0.0


def rejection(sentence: str, wait_s: float) -> JSONResponse:
    """Return a response with status 429 and the seconds to wait."""
    seconds = math.ceil(wait_s)
    detail = f"{sentence} Try again in {seconds} s."
    return JSONResponse({"detail": detail}, 429, headers={"Retry-After": str(seconds)})
