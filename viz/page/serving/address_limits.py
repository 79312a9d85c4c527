"""Limits of one address: rate of requests and of failed logins, and number of pending events."""

import asyncio
import json
import logging
import math
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pine_engine.web.addresses import sender_of
from pine_engine.web.middleware import limit_body, replay
from viz.page.jobs.connection_tracker import CALLER, MCP
from viz.page.serving.event_queue import pending_events
from viz.page.serving.request_limits import BODY_S

login_log = logging.getLogger("pine_explorer.logins")

EVENT = re.compile(r"/gradio_api/(?:queue/join|(?:run|api)/[^/]+|call/.+)/?", re.DOTALL)
"""Paths of gradio that accept an event."""

LOGIN = re.compile(r"/login/?")

MAX_ADDRESSES = 10_000
"""Maximum number of addresses with a state; beyond it the least recently used ones are dropped."""

MAX_REQUESTS, REQUESTS_S = 1200, 60.0  # requests of one address in this time, in seconds, or in one burst
MAX_LOGINS, LOGINS_S = 60, 600.0  # failed logins with one name from one address
LOGIN_PAUSE_S = 0.5  # seconds between further logins with this name, of which a right one is accepted
MAX_LOGIN_BYTES = 10_000  # of a request to log in
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
        self._logins_of = lru_cache(MAX_ADDRESSES)(lambda address, name: LoginLimit())
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
        if is_login:
            await self._log_in(address, app, scope, receive, send)
        elif wait_s := self._requests_of(address).take():
            sentence = f"Too many requests from your address: more than {MAX_REQUESTS:,} in a minute."
            await rejection(sentence, wait_s)(scope, receive, send)
        elif is_event and _num_pending(scope["app"].get_blocks(), address) >= MAX_PENDING_EVENTS:
            sentence = f"Too many events of your address wait or run: more than {MAX_PENDING_EVENTS}."
            await rejection(sentence, RETRY_S)(scope, receive, send)
        elif is_event:
            async with self._events_of(address):
                await app(scope, receive, send)
        else:
            await app(scope, receive, send)

    async def _log_in(self, address: str, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a login, the later ones of many slowly; a wrong one gets status 429 after too many.

        Visitors who share an address cannot use up the logins of its owner: failed ones are counted by name
        and address, and a right password is accepted after any number of them.
        """
        body = await Request(scope, limit_body(receive, MAX_LOGIN_BYTES, BODY_S)).body()
        form = await Request(scope, replay(body, receive)).form()
        limit = self._logins_of(address, str(form.get("username", "")).strip())
        async with limit.turn():
            await app(scope, replay(body, receive), _count_failure(send, address, limit.failures))


class LoginLimit:
    """Failed logins with one name from one address, and the order in which many are checked."""

    def __init__(self) -> None:
        self.failures = TokenBucket(MAX_LOGINS, LOGINS_S)
        self._turn = asyncio.Semaphore(1)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Check one login at a time after too many failures, with a pause before each."""
        if not self.failures.wait_s():
            yield
            return
        async with self._turn:
            await asyncio.sleep(LOGIN_PAUSE_S)
            yield


class TokenBucket:
    """Rate limit: a number of tokens, which are refilled in some seconds."""

    def __init__(self, max_tokens: int, period_s: float) -> None:
        self._max_tokens, self._rate = max_tokens, max_tokens / period_s
        self._tokens, self._updated_at = float(max_tokens), time.monotonic()

    def wait_s(self) -> float:
        """Return the seconds until there is a token, 0 if there is one."""
        now = time.monotonic()
        self._tokens = min(self._max_tokens, self._tokens + (now - self._updated_at) * self._rate)
        self._updated_at = now
        return max(0.0, (1 - self._tokens) / self._rate)

    def take(self) -> float:
        """Take a token. Return the seconds until there is one, 0 if there was."""
        if wait_s := self.wait_s():
            return wait_s
        self._tokens -= 1
        return 0.0


def _num_pending(page: Any, address: str) -> int:
    """Count the waiting and running events of an address."""
    return sum(page.connections.address(event.request) == address for event in pending_events(page))


def _count_failure(send: Send, address: str, failures: TokenBucket) -> Send:
    """Return a send function that counts and logs a failed login; too many get status 429."""
    is_rejected = False

    async def send_and_count(message: Message) -> None:
        nonlocal is_rejected
        if message.get("status") == WRONG_LOGIN:
            wait_s = failures.take()
            is_rejected = wait_s > 0
            if is_rejected:
                response = rejection("Too many failed logins with this name from your address.", wait_s)
                headers = {"type": "http.response.start", "status": 429, "headers": response.raw_headers}
                await send(headers)
                await send({"type": "http.response.body", "body": response.body})
                return
            now = datetime.now(UTC).isoformat(timespec="milliseconds")
            line = {"time": now, "operation": "login", "address": address, "outcome": "rejected"}
            login_log.info(json.dumps(line))
        if not is_rejected:
            await send(message)

    return send_and_count


def rejection(sentence: str, wait_s: float) -> JSONResponse:
    """Return a response with status 429 and the seconds to wait."""
    seconds = math.ceil(wait_s)
    detail = f"{sentence} Try again in {seconds} s."
    return JSONResponse({"detail": detail}, 429, headers={"Retry-After": str(seconds)})
