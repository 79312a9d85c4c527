"""Connected clients: open pages, listeners for answers, and MCP clients.

Gradio computes an answer also after its client has disconnected; this middleware counts connections.
"""

import re
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

import gradio as gr
from gradio.context import LocalContext

from pine_engine.errors import Cancelled
from viz.page.common.addresses import sender_of
from viz.page.common.asgi import App, Receive, Scope, Send, without_headers

LISTENING_S = 10.0
"""Seconds for which an answer without a listener is computed: a client sends first, then listens."""

CALLER = b"x-pine-caller"
"""Header by which the MCP server of gradio names the client in its requests to this process."""

HEARTBEAT = re.compile(r"/gradio_api/heartbeat/(?P<name>[^/]+)/?")
ANSWER = re.compile(r"/gradio_api/call/(?:v2/)?[^/]+/(?P<name>[^/]+)/?")
ANSWERS = re.compile(r"/gradio_api/queue/data/?")
MCP = re.compile(r"/gradio_api/mcp(/.*)?")


@dataclass(frozen=True)
class Visitor:
    """Client for which something is computed."""

    address: str = ""
    page: str = ""
    """Session of an open page; "" for a script."""

    @property
    def name(self) -> str:
        """Return the key of the client: its session, or its address for scripts."""
        return self.page or self.address


class Presence:
    """Open connections by session and by event, counted in the server thread and read in worker threads."""

    def __init__(self) -> None:
        self._pages: Counter[str] = Counter()
        self._listeners: Counter[str] = Counter()
        self._heard: dict[str, float] = {}
        self._callers: dict[str, str] = {}

    def has_page(self, session: str | None) -> bool:
        """Check whether the page of a session is open."""
        return bool(session) and session in self._pages

    def seconds_unheard(self, event: Any) -> float:
        """Return the seconds since an event of gradio's queue last had a listener."""
        names = (event.session_hash, event._id)
        if any(name in self._listeners for name in names):
            return 0.0
        since = max(event.enqueue_time, *(self._heard.get(name, 0.0) for name in names))
        return float(time.monotonic() - since)

    def is_there(self, event: Any) -> bool:
        """Check whether an event has a client that waits for its answer."""
        caller = event.request.headers.get(CALLER.decode())
        if caller is not None and caller not in self._callers:
            return False
        return bool(event.alive) and self.seconds_unheard(event) <= LISTENING_S

    def visitor(self, request: gr.Request | None) -> Visitor:
        """Return the client of a request; an anonymous one for None."""
        client = getattr(request, "client", None)  # one that gradio makes itself has none
        if request is None or client is None:
            return Visitor()
        address = self.address(request)
        if request.headers.get(CALLER.decode(), "") in self._callers:
            return Visitor(address)
        session = request.session_hash or ""
        return Visitor(address, session if self.has_page(session) else "")

    def address(self, request: Any) -> str:
        """Return the address of the client of a request; of a tool call, that of its MCP client."""
        caller = self._callers.get(request.headers.get(CALLER.decode(), ""))
        if caller is not None:
            return caller
        return sender_of(request.client.host) if request.client else ""

    @contextmanager
    def page(self, session: str) -> Iterator[None]:
        """Mark the page as open while the block runs."""
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

    def knows(self, caller: str) -> bool:
        """Check whether this is the name of a connected MCP client."""
        return caller in self._callers


class PresenceMiddleware:
    """ASGI middleware that counts connections."""

    def __init__(self, app: App, presence: Presence) -> None:
        self._app, self._presence = app, presence

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path, presence = scope["path"], self._presence
        if not any(
            name == CALLER and presence.knows(value.decode("latin-1")) for name, value in scope["headers"]
        ):
            scope = without_headers(scope, CALLER)
        if found := HEARTBEAT.fullmatch(path):
            with presence.page(found["name"]):
                await self._app(scope, receive, send)
        elif scope["method"] == "GET" and (listener := _listener(scope)):
            with presence.listening(listener):
                await self._app(scope, receive, send)
        elif MCP.fullmatch(path):
            await self._call(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _call(self, scope: Scope, receive: Receive, send: Send) -> None:
        address = sender_of(scope["client"][0]) if scope.get("client") else ""
        with self._presence.calling(address) as name:
            scope = {**scope, "headers": [*scope["headers"], (CALLER, name.encode())]}
            await self._app(scope, receive, send)


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


def visitor() -> Visitor:
    """Return the client of this thread; an anonymous one outside of events."""
    page: Any = LocalContext.blocks.get(None)
    return Visitor() if page is None else page.presence.visitor(LocalContext.request.get(None))


def listener() -> Callable[[], bool]:
    """Return a thread-safe check for a listener of this event; always True outside of events."""
    page: Any = LocalContext.blocks.get(None)
    event = _event(page)
    return (lambda: True) if event is None else lambda: page.presence.seconds_unheard(event) == 0.0


def visitor_left() -> bool:
    """Check whether the client of this event has disconnected; False outside of events.

    Gradio checks only between two yields, and closes generators in the server thread.
    """
    page: Any = LocalContext.blocks.get(None)
    event = _event(page)
    return event is not None and not page.presence.is_there(event)


def _event(page: Any) -> Any:
    """Return the event of gradio's queue in this thread, or None."""
    event_id = LocalContext.event_id.get(None)
    return page._queue.event_ids_to_events.get(event_id) if page and event_id else None


def stop_if_left() -> None:
    """Raise Cancelled after the client has disconnected."""
    if visitor_left():
        raise Cancelled("the visitor has left")
