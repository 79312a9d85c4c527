"""Middleware that counts connected clients: open pages, listeners for answers, and MCP clients.

Gradio computes an answer also if its client has disconnected.
"""

import re
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs

from gradio.context import LocalContext
from starlette.types import ASGIApp, Receive, Scope, Send

from pine_engine.errors import Cancelled
from pine_engine.scheduling.runs import Caller
from pine_engine.scheduling.turns import Client
from pine_engine.web.addresses import sender_of
from pine_engine.web.middleware import without_headers

LISTENING_S = 10.0
"""Seconds for which an answer without a listener is computed. A client listens after its request."""

CALLER = b"x-pine-caller"
"""Header by which the MCP server of gradio names the client in its requests to this process."""

HEARTBEAT = re.compile(r"/gradio_api/heartbeat/(?P<name>[^/]+)/?")
ANSWER = re.compile(r"/gradio_api/call/(?:v2/)?[^/]+/(?P<name>[^/]+)/?")
ANSWERS = re.compile(r"/gradio_api/queue/data/?")
MCP = re.compile(r"/gradio_api/mcp(/.*)?")


class ConnectionTracker:
    """Number of open connections by session and event, counted in the server thread, read in others."""

    def __init__(self) -> None:
        self._pages: Counter[str] = Counter()
        self._listeners: Counter[str] = Counter()
        self._heard: dict[str, float] = {}
        self._callers: dict[str, str] = {}

    async def __call__(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Count the connection while the app answers the request, and remove forged CALLER headers."""
        path = scope["path"]
        callers = [value.decode("latin-1") for name, value in scope["headers"] if name == CALLER]
        if not any(caller in self._callers for caller in callers):
            scope = without_headers(scope, CALLER)
        if found := HEARTBEAT.fullmatch(path):
            with self.open_page(found["name"]):
                await app(scope, receive, send)
        elif scope["method"] == "GET" and (listener := _listener(scope)):
            with self.listening(listener):
                await app(scope, receive, send)
        elif MCP.fullmatch(path):
            address = sender_of(scope["client"][0]) if scope.get("client") else ""
            with self.calling(address) as name:
                scope = {**scope, "headers": [*scope["headers"], (CALLER, name.encode())]}
                await app(scope, receive, send)
        else:
            await app(scope, receive, send)

    def has_page(self, session: str | None) -> bool:
        """Return True if the page of a session is open."""
        return bool(session) and session in self._pages

    def seconds_unheard(self, event: Any) -> float:
        """Return the seconds since an event of gradio's queue last had a listener."""
        names = (event.session_hash, event._id)
        if any(name in self._listeners for name in names):
            return 0.0
        since = max(event.enqueue_time, *(self._heard.get(name, 0.0) for name in names))
        return float(time.monotonic() - since)

    def is_connected(self, event: Any) -> bool:
        """Return True if a client waits for the answer of an event."""
        caller = event.request.headers.get(CALLER.decode())
        if caller is not None and caller not in self._callers:
            return False
        return bool(event.alive) and self.seconds_unheard(event) <= LISTENING_S

    def client(self, request: Any) -> Client:
        """Return the client of a request; an anonymous one for None."""
        if getattr(request, "client", None) is None:  # one that gradio makes itself has none
            return Client()
        session = request.session_hash or ""
        is_page = self.has_page(session) and request.headers.get(CALLER.decode()) not in self._callers
        return Client(self.address(request), session if is_page else "")

    def address(self, request: Any) -> str:
        """Return the address of the client of a request; of a tool call, that of its MCP client."""
        caller = self._callers.get(request.headers.get(CALLER.decode(), ""))
        if caller is not None:
            return caller
        return sender_of(request.client.host) if request.client else ""

    @contextmanager
    def open_page(self, session: str) -> Iterator[None]:
        """Mark the page of a session as open while the block runs."""
        with _counted(self._pages, session):
            yield

    @contextmanager
    def listening(self, name: str) -> Iterator[None]:
        """Count a listener of a session or an event while the block runs."""
        try:
            with _counted(self._listeners, name):
                yield
        finally:
            now = time.monotonic()
            self._heard = {one: at for one, at in self._heard.items() if now - at <= LISTENING_S} | {
                name: now
            }

    @contextmanager
    def calling(self, address: str) -> Iterator[str]:
        """Register an MCP client of this address while the block runs, and yield its name."""
        name = secrets.token_hex(16)
        self._callers[name] = address
        try:
            yield name
        finally:
            del self._callers[name]


def _listener(scope: Scope) -> str | None:
    """Return the session or event that a request listens to; None for other requests."""
    if found := ANSWER.fullmatch(scope["path"]):
        return found["name"]
    if ANSWERS.fullmatch(scope["path"]):
        return next(iter(parse_qs(scope["query_string"].decode("latin-1")).get("session_hash", ())), None)
    return None


@contextmanager
def _counted(counter: Counter[str], name: str) -> Iterator[None]:
    counter[name] += 1
    try:
        yield
    finally:
        counter[name] -= 1
        if not counter[name]:
            del counter[name]


def current_caller() -> Caller:
    """Return the caller of this thread, an anonymous one outside of events.

    Its check ends runs of disconnected clients. Gradio checks connections only between two yields, and closes
    generators in the server thread.
    """
    page: Any = LocalContext.blocks.get(None)
    if page is None:
        return Caller()
    connections: ConnectionTracker = page.connections
    client = connections.client(LocalContext.request.get(None))
    event = page._queue.event_ids_to_events.get(LocalContext.event_id.get(None))
    if event is None:
        return Caller(client)

    def check() -> None:
        if not connections.is_connected(event):
            raise Cancelled("the client has disconnected")

    return Caller(client, lambda: connections.seconds_unheard(event) == 0.0, check)
