"""Connections: open pages, listening API clients and disconnected MCP clients."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from viz.page.jobs.presence import CALLER, LISTENING_S, Presence, PresenceMiddleware, Visitor


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which the test moves on."""
    now = [1000.0]
    monkeypatch.setattr("viz.page.jobs.presence.time.monotonic", lambda: now[0])
    return now


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
    presence = Presence()
    sent_request = event(clock)
    clock[0] += LISTENING_S
    assert presence.is_there(sent_request)
    clock[0] += 1
    assert not presence.is_there(sent_request)  # never listened
    with presence.listening(name), presence.listening(name):
        clock[0] += 100
        assert presence.is_there(sent_request)
    clock[0] += LISTENING_S
    assert presence.is_there(sent_request)
    clock[0] += 1
    assert not presence.is_there(sent_request)
    with presence.listening("other"):
        assert not presence.is_there(sent_request)


def test_what_gradio_knows_is_believed(clock: list[float]) -> None:
    presence = Presence()
    with presence.listening("session"):
        assert not presence.is_there(event(clock, alive=False))


def test_an_assistant_is_there_until_it_hangs_up(clock: list[float]) -> None:
    presence = Presence()
    with presence.calling("198.51.100.7") as name:
        sent_request = event(clock, {CALLER.decode(): name})
        assert presence.is_there(sent_request) and presence.knows(name)
        # It is called by this very process, whose own page is always open.
        with presence.page("session"):
            assert presence.visitor(request("session", "127.0.0.1", name)) == Visitor("198.51.100.7")
    assert not presence.is_there(sent_request) and not presence.knows(name)


def test_pages_and_scripts_are_distinct_clients() -> None:
    presence = Presence()
    assert presence.visitor(None) == Visitor()
    assert presence.visitor(request("a")) == Visitor("10.0.0.1") and not presence.has_page("a")
    with presence.page("a"), presence.page("b"):
        with presence.page("a"):
            pass
        assert presence.visitor(request("a")) == Visitor("10.0.0.1", "a")
        assert presence.visitor(request("a")).name != presence.visitor(request("b")).name
    assert not presence.has_page("a") and not presence.has_page("") and not presence.has_page(None)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8:1:2::3", "2001:db8:1:2:ffff::1", True),
        ("2001:db8:1:2::3", "2001:db8:1:3::3", False),
        ("198.51.100.7", "198.51.100.8", False),
    ],
)
def test_who_has_a_network_of_addresses_is_one_visitor(one: str, other: str, same: bool) -> None:
    presence = Presence()
    sent_request = [presence.visitor(request(address=address)).name for address in (one, other)]
    assert (sent_request[0] == sent_request[1]) == same


def through(presence: Presence, path: str, seen: list[Any], **scope: Any) -> None:
    """Sends a request through the door; the application looks around."""

    async def look(scope: Any, receive: Any, send: Any) -> None:
        caller = dict(scope["headers"]).get(CALLER, b"").decode()
        sent_request = SimpleNamespace(
            _id="e", session_hash="s", alive=True, enqueue_time=-1000.0, request=SimpleNamespace(headers={})
        )
        seen.append(
            (presence.has_page("s"), presence.seconds_unheard(sent_request) == 0.0, presence.knows(caller))
        )

    async def unused(*_: Any) -> Any:
        raise AssertionError

    sent_request = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": []} | scope
    asyncio.run(PresenceMiddleware(look, presence)(sent_request, unused, unused))


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
def test_connections_tell_who_is_there(path: str, scope: Any, expected: tuple[bool, bool, bool]) -> None:
    presence = Presence()
    seen: list[Any] = []
    through(presence, path, seen, **scope)
    assert seen == [expected]
    assert not presence.has_page("s")


def test_page_is_not_taken_for_an_mcp_client() -> None:
    presence = Presence()
    seen: list[Any] = []
    forged = [(CALLER, b"f" * 32)]
    through(presence, "/gradio_api/queue/join", seen, method="POST", headers=forged)
    with presence.calling("10.0.0.1") as name:
        through(presence, "/gradio_api/queue/join", seen, method="POST", headers=[(CALLER, name.encode())])
    assert [knows for *_, knows in seen] == [False, True]
