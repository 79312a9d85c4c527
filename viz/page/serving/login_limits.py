"""Rate limit of logins: waits double after repeated failures, and each failure is logged."""

import asyncio
import json
import logging
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime

from viz.page.common.address_table import AddressTable
from viz.page.common.addresses import sender_of
from viz.page.common.asgi import App, Message, Receive, Scope, Send, read_body, replay
from viz.page.serving.rate_limits import LOGIN, rejection

log = logging.getLogger("pine_explorer.logins")

FREE_FAILURES = 5
"""Failed logins of one address without a wait; several people may share the address."""

MAX_WAIT_S = 60.0
"""Longest wait after a failed login."""

KEEP_S = 600.0
"""Seconds without an attempt after which failures are forgotten."""

FAILED = 400
"""Status of gradio for a wrong name or password, which are compared in constant time."""


@dataclass
class _Attempts:
    failures: int = 0
    next_at: float = 0.0
    """In seconds of time.monotonic()."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def fail(self) -> None:
        self.failures += 1
        if self.failures >= FREE_FAILURES:
            wait_s = min(MAX_WAIT_S, 2.0 ** min(self.failures - FREE_FAILURES, 10))
            self.next_at = time.monotonic() + wait_s

    def succeed(self) -> None:
        self.failures, self.next_at = 0, 0.0


class LoginLimitMiddleware:
    """ASGI middleware that passes on one login of an address at a time.

    After FREE_FAILURES failed logins in a row the wait is 1 s and doubles up to MAX_WAIT_S. A login resets
    it.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self._attempts = AddressTable(_Attempts, keep_s=KEEP_S)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer with status 429."""
        if scope["type"] != "http" or scope["method"] != "POST" or not LOGIN.fullmatch(scope["path"]):
            await self._app(scope, receive, send)
            return
        body = await read_body(receive)  # before the lock, which a slow client would hold
        if body is None:
            return
        address = sender_of(scope["client"][0]) if scope.get("client") else ""
        attempts = self._attempts.use(address)
        status = 0

        async def watched(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        async with attempts.lock:
            wait_s = attempts.next_at - time.monotonic()
            if wait_s > 0:
                await rejection("Too many failed logins from your address.", wait_s)(scope, receive, send)
                return
            await self._app(scope, replay(body, receive), watched)
            if status == FAILED:
                attempts.fail()
                log.info(_log_line(address))
            elif 0 < status < FAILED:
                attempts.succeed()


def _log_line(address: str) -> str:
    """Return the log line, a JSON object without name and password."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return json.dumps({"time": now, "operation": "login", "address": address, "outcome": "rejected"})
