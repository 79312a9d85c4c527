"""Limits of one request (size, time, disk quota, form of MCP messages) and of one address (rates, events)."""

import asyncio
import json
import logging
import math
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pine_engine.errors import InputError
from pine_engine.prompts.untrusted_json import load_json
from pine_engine.web.addresses import sender_of
from pine_engine.web.middleware import limit_body
from viz.page.common.disk import FULL, DiskFullError, is_disk_full
from viz.page.common.failures import (
    MAX_DOCUMENTS,
    MAX_UPLOAD_MB,
    MAX_VALUES,
    TOO_MANY_VALUES,
    explain,
    is_request_error,
)
from viz.page.jobs.connection_tracker import CALLER, MCP

log, login_log = logging.getLogger(__name__), logging.getLogger("pine_explorer.logins")

MAX_BYTES = 2_000_000  # maximum bytes of a request without files
MAX_REFUSED_BYTES = 20_000_000  # maximum bytes that are received after these, and discarded
MAX_UPLOAD_BYTES = MAX_DOCUMENTS * MAX_UPLOAD_MB * 1_100_000
"""Maximum bytes of a request with files; gradio limits each file."""

BODY_S, BODY_OF_FILES_S = 30.0, 300.0  # seconds in which the whole request must arrive
MAX_DEPTH = 50  # maximum nesting depth of an MCP message; a valid call has three levels
NOT_UNDERSTOOD = "Invalid request. See docs/api.md."
TOO_DEEP = f"Invalid JSON: nested deeper than {MAX_DEPTH} levels."
NOT_JSON = "Invalid request body: expected JSON. See docs/api.md."


async def limit_request(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Limit size and time of a request, and turn errors into a sentence, those of the request without log."""
    path = scope["path"].rstrip("/")
    has_files = path.endswith("/upload")
    max_bytes, seconds = (MAX_UPLOAD_BYTES, BODY_OF_FILES_S) if has_files else (MAX_BYTES, BODY_S)
    has_begun = False

    async def send_and_note(message: Message) -> None:
        nonlocal has_begun
        if has_begun and message["type"] == "http.response.start":
            return  # the mcp package begins a response at the end of a stream whose client has left
        has_begun = True
        await send(message)

    limited = limit_body(receive, max_bytes, seconds)

    async def receive_to_end() -> Message:
        """Receive a body too large to its end: a browser reads no answer before it has sent everything."""
        try:
            return await limited()
        except HTTPException as error:
            rest = limit_body(receive, MAX_REFUSED_BYTES, seconds)
            with suppress(HTTPException):
                while error.status_code == 413 and (await rest()).get("more_body", False):
                    pass
            raise

    try:
        await app(scope, receive_to_end, send_and_note)
        return
    except ClientDisconnect:
        return
    except HTTPException as error:
        status, detail = error.status_code, error.detail
    except Exception as error:
        log.warning("%s %s failed: %s", scope["method"], path, type(error).__name__)
        status, detail = (400, NOT_UNDERSTOOD) if is_request_error(error) else (500, explain(error))
    if not has_begun:
        await JSONResponse({"detail": detail}, status)(scope, receive, send)


async def limit_uploads(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Count uploads in the disk quota; reject them if the page takes no files or the disk is full."""
    if not scope["path"].rstrip("/").endswith("/upload"):
        await app(scope, receive, send)
        return
    page = scope["app"].get_blocks()
    has_more = True

    async def receive_counted() -> Message:
        nonlocal has_more
        message = await receive()
        has_more = message.get("more_body", False)
        await run_in_threadpool(page.disk.check, len(message.get("body", b"")))
        return message

    status, reason = 403, page.no_files
    if not reason:
        try:
            with page.disk.upload():
                await app(scope, receive_counted, send)
            return
        except DiskFullError as error:
            status, reason = 507, str(error)
        except OSError as error:
            if not is_disk_full(error):
                raise
            status, reason = 507, FULL
        log.warning("Upload rejected: %s", reason.partition(":")[0])
    while has_more:  # a browser reads no answer before it has sent everything
        has_more = (await receive()).get("more_body", False)
    await PlainTextResponse(reason, status)(scope, receive, send)


async def check_mcp_message(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Reject messages that are not JSON, too deep or too many values.

    The mcp package logs tracebacks for them, or takes seconds.
    """
    if scope["method"] != "POST" or not MCP.fullmatch(scope["path"]):
        await app(scope, receive, send)
        return
    body = await Request(scope, receive).body()
    if problem := message_problem(body):
        await JSONResponse({"detail": problem}, 400)(scope, receive, send)
        return
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return messages.pop() if messages else await receive()

    await app(scope, receive_again, send)


def message_problem(body: bytes) -> str | None:
    """Describe the error of a message; None for a valid one."""
    try:
        level = [load_json(body, "message")]
    except InputError as error:
        is_deep = isinstance(error.__cause__, RecursionError)
        return TOO_DEEP if is_deep else NOT_JSON if error.__cause__ else explain(error)
    num_values = 0
    for _ in range(MAX_DEPTH):
        collections = [value for value in level if isinstance(value, list | dict)]
        num_values += sum(map(len, collections))
        if num_values > MAX_VALUES:
            return TOO_MANY_VALUES
        level = [item for one in collections for item in (one.values() if isinstance(one, dict) else one)]
        if not level:
            return None
    return TOO_DEEP


# Limits of one address

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

        def received_again() -> Receive:
            messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

            async def receive_again() -> Message:
                return messages.pop() if messages else await receive()

            return receive_again

        form = await Request(scope, received_again()).form()
        limit = self._logins_of(address, str(form.get("username", "")).strip())
        async with limit.turn():
            await app(scope, received_again(), _count_failure(send, address, limit.failures))


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
    """Count the waiting and running events of an address in gradio's queue."""
    events = page._queue.event_ids_to_events.values()
    return sum(page.connections.address(event.request) == address for event in events)


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
