"""Connections: open pages, listening API clients and disconnected MCP clients."""

import asyncio
from contextvars import copy_context
from types import SimpleNamespace
from typing import Any

import pytest
from gradio.context import LocalContext

from pine_engine.errors import Cancelled
from pine_engine.scheduling.runs import Caller
from pine_engine.scheduling.turns import Client
from pine_engine.web.middleware import http_middleware
from viz.page.jobs.connection_tracker import CALLER, LISTENING_S, ConnectionTracker, current_caller


def event(clock: list[float], headers: dict[str, str] | None = None, *, alive: bool = True) -> Any:
    """One of gradio's queue, that has just come."""
    return SimpleNamespace(
        _id="event",
        session_hash="session",
        alive=alive,
        enqueue_time=clock[0],
        request=SimpleNamespace(headers=headers or {}),
    )


def request(session: str = "", address: str = "10.0.0.1", caller: str = "") -> Any:
    return SimpleNamespace(
        client=SimpleNamespace(host=address),
        session_hash=session,
        headers={CALLER.decode(): caller} if caller else {},
    )


@pytest.mark.parametrize("name", ["session", "event"])
def test_answer_is_wanted_shortly_after_the_last_listener(name: str, clock: list[float]) -> None:
    connections = ConnectionTracker()
    sent_request = event(clock)
    clock[0] += LISTENING_S
    assert connections.is_connected(sent_request)
    clock[0] += 1
    assert not connections.is_connected(sent_request)  # never listened
    with connections.listening(name), connections.listening(name):
        clock[0] += 100
        assert connections.is_connected(sent_request)
    clock[0] += LISTENING_S
    assert connections.is_connected(sent_request)
    clock[0] += 1
    assert not connections.is_connected(sent_request)
    with connections.listening("other"):
        assert not connections.is_connected(sent_request)


def test_event_that_gradio_ended_is_disconnected(clock: list[float]) -> None:
    connections = ConnectionTracker()
    with connections.listening("session"):
        assert not connections.is_connected(event(clock, alive=False))


def test_mcp_client_is_connected_until_it_hangs_up(clock: list[float]) -> None:
    connections = ConnectionTracker()
    with connections.calling("198.51.100.7") as name:
        sent_request = event(clock, {CALLER.decode(): name})
        assert connections.is_connected(sent_request)
        # It is called by this very process, whose own page is always open.
        with connections.open_page("session"):
            assert connections.client(request("session", "127.0.0.1", name)) == Client("198.51.100.7")
    assert not connections.is_connected(sent_request)


def test_pages_and_scripts_are_distinct_clients() -> None:
    connections = ConnectionTracker()
    assert connections.client(None) == Client()
    assert connections.client(request("a")) == Client("10.0.0.1") and not connections.has_page("a")
    with connections.open_page("a"), connections.open_page("b"):
        with connections.open_page("a"):
            pass
        assert connections.client(request("a")) == Client("10.0.0.1", "a")
        assert connections.client(request("a")).name != connections.client(request("b")).name
    assert not connections.has_page("a") and not connections.has_page("") and not connections.has_page(None)
    networks = [connections.client(request(address=f"2001:db8:{end}")) for end in ("1::3", "1::4:5", "2:3::")]
    assert networks[0] == networks[1] != networks[2]


def test_caller_of_an_event_is_cancelled_after_its_disconnect(clock: list[float]) -> None:
    connections = ConnectionTracker()
    queue = SimpleNamespace(event_ids_to_events={"event": event(clock)})
    page: Any = SimpleNamespace(connections=connections, _queue=queue)

    def find_caller() -> Caller:
        LocalContext.blocks.set(page)
        LocalContext.event_id.set("event")
        LocalContext.request.set(request("session"))
        return current_caller()

    caller = copy_context().run(find_caller)
    clock[0] += 1
    assert caller.client == Client("10.0.0.1") and not caller.is_listening()
    with connections.listening("session"):
        clock[0] += LISTENING_S + 1
        caller.check()
        assert caller.is_listening()
    clock[0] += LISTENING_S + 1
    with pytest.raises(Cancelled):
        caller.check()
    assert current_caller().client == Client()


def state_during(connections: ConnectionTracker, path: str, **scope: Any) -> tuple[bool, bool, bool]:
    """Return whether a page, a listener and an MCP client are connected while a request is answered."""
    seen: list[tuple[bool, bool, bool]] = []

    async def look(scope: Any, receive: Any, send: Any) -> None:
        caller = dict(scope["headers"]).get(CALLER, b"").decode()
        waiting = SimpleNamespace(_id="e", session_hash="s", enqueue_time=-1000.0)
        is_heard = connections.seconds_unheard(waiting) == 0.0
        seen.append((connections.has_page("s"), is_heard, caller in connections._callers))

    async def unused(*_: Any) -> Any:
        raise AssertionError

    request = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": []} | scope
    app: Any = http_middleware(connections)(look)
    asyncio.run(app(request, unused, unused))
    return seen[0]


@pytest.mark.parametrize(
    ("path", "scope", "expected"),
    [
        ("/gradio_api/heartbeat/s", {}, (True, False, False)),
        ("/gradio_api/queue/data", {"query_string": b"session_hash=s"}, (False, True, False)),
        ("/gradio_api/queue/data", {}, (False, False, False)),
        ("/gradio_api/call/compare/e", {}, (False, True, False)),
        ("/gradio_api/call/v2/compare/e", {}, (False, True, False)),
        ("/gradio_api/call/compare/e", {"method": "POST"}, (False, False, False)),
        ("/gradio_api/mcp/", {"method": "POST", "client": ("10.0.0.1", 1)}, (False, False, True)),
        ("/gradio_api/queue/join", {"method": "POST"}, (False, False, False)),
    ],
)
def test_connection_tracker_counts_request(path: str, scope: Any, expected: tuple[bool, bool, bool]) -> None:
    connections = ConnectionTracker()
    assert state_during(connections, path, **scope) == expected
    assert not connections.has_page("s")


def test_connection_tracker_ignores_forged_caller() -> None:
    connections = ConnectionTracker()
    join = {"path": "/gradio_api/queue/join", "method": "POST"}
    assert not state_during(connections, **join, headers=[(CALLER, b"f" * 32)])[2]
    with connections.calling("10.0.0.1") as name:
        assert state_during(connections, **join, headers=[(CALLER, name.encode())])[2]
