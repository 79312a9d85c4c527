"""Limits of one address: rate of requests and logins, and pending events."""

import asyncio
import logging
import time
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from pine_engine.web.middleware import http_middleware
from viz.page.jobs.connection_tracker import ConnectionTracker
from viz.page.serving import address_limits
from viz.page.serving.address_limits import LOGINS_S, REQUESTS_S, AddressLimits

MAX_REQUESTS = 6
MAX_EVENTS = 3
JOIN = "/gradio_api/queue/join"


async def greet(scope: Any, receive: Any, send: Any) -> None:
    await PlainTextResponse("hi")(scope, receive, send)


@pytest.fixture(autouse=True)
def few_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address_limits, "MAX_REQUESTS", MAX_REQUESTS)
    monkeypatch.setattr(address_limits, "MAX_PENDING_EVENTS", MAX_EVENTS)


def limited(app: Any = greet, *, pending: dict[str, Any] | None = None) -> Any:
    """Return an app behind the limits, on a page with these pending events."""
    queue = SimpleNamespace(event_ids_to_events=pending or {})
    page = SimpleNamespace(_queue=queue, connections=ConnectionTracker())
    limits = http_middleware(AddressLimits())(app)

    async def on_page(scope: Any, receive: Any, send: Any) -> None:
        await limits(scope | {"app": SimpleNamespace(get_blocks=lambda: page)}, receive, send)

    return on_page


def statuses(
    app: Any, number: int, path: str = JOIN, host: str = "198.51.100.1", **options: Any
) -> list[int]:
    client = TestClient(app, client=(host, 50000))
    return [client.post(path, **options).status_code for _ in range(number)]


def test_rate_limit_burst_used_up_rejects_until_refilled(clock: list[float]) -> None:
    app = limited()
    assert statuses(app, MAX_REQUESTS + 1) == [200] * MAX_REQUESTS + [429]
    rejected = TestClient(app, client=("198.51.100.1", 1)).post(JOIN)
    assert rejected.headers["retry-after"] == str(round(REQUESTS_S / MAX_REQUESTS))
    assert rejected.json()["detail"]
    clock[0] += REQUESTS_S / MAX_REQUESTS
    assert statuses(app, 2) == [200, 429]
    clock[0] += 10 * REQUESTS_S
    assert statuses(app, MAX_REQUESTS + 1) == [200] * MAX_REQUESTS + [429]


def test_rate_limit_of_one_address_leaves_others_alone(clock: list[float]) -> None:
    app = limited()
    assert statuses(app, MAX_REQUESTS, host="2001:db8:0:1::1")[-1] == 200
    assert statuses(app, 1, host="2001:db8:0:1::2") == [429]  # of the same network of 2**64 addresses
    assert statuses(app, 1, host="2001:db8:0:2::1") == [200]
    assert statuses(app, 1, host="198.51.100.1") == [200]


@pytest.mark.parametrize(
    "path",
    [
        JOIN,
        f"{JOIN}/",
        "/gradio_api/call/compare",
        "/gradio_api/call/v2/compare",
        "/gradio_api/run/predict",
        "/gradio_api/api/predict",
        "/gradio_api/mcp",
        "/gradio_api/mcp/",
        "/gradio_api/mcp/messages/",
    ],
)
def test_rate_limit_covers_path(path: str, clock: list[float]) -> None:
    app = limited()
    assert statuses(app, MAX_REQUESTS + 1, path)[-2:] == [200, 429]
    assert TestClient(app, client=("198.51.100.1", 1)).get(path).status_code == 200


def test_rate_limit_counts_tool_call_once(clock: list[float]) -> None:
    """gradio answers a tool call by a request of this process to itself."""
    connections = ConnectionTracker()
    app = http_middleware(connections)(limited())
    with connections.calling("198.51.100.1") as name:
        assert set(statuses(app, 2 * MAX_REQUESTS, headers={"x-pine-caller": name})) == {200}
    assert statuses(app, MAX_REQUESTS + 1, headers={"x-pine-caller": "forged"})[-1] == 429


def test_pending_events_of_one_address_are_limited(clock: list[float]) -> None:
    """gradio starts events in order: others would wait for all of them."""
    request = SimpleNamespace(client=SimpleNamespace(host="198.51.100.1"), headers={})
    pending = {str(number): SimpleNamespace(request=request) for number in range(MAX_EVENTS)}
    app = limited(pending=pending)
    assert statuses(app, 1) == [429] and statuses(app, 1, host="198.51.100.2") == [200]
    del pending["0"]
    assert statuses(app, 1) == [200]


def test_address_limits_memory_is_bounded(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address_limits, "MAX_ADDRESSES", 3)
    limits = AddressLimits()
    for number in range(100):
        limits._requests_of(f"198.51.100.{number}").take()
    assert limits._requests_of.cache_info().currsize == 3


async def check_password(scope: Any, receive: Any, send: Any) -> None:
    """Answer as gradio does; only the password "right" is right."""
    form = await Request(scope, receive).form()
    status = 200 if form.get("password") == "right" else 400
    await PlainTextResponse("", status)(scope, receive, send)


@pytest.fixture
def few_logins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address_limits, "MAX_LOGINS", 3)
    monkeypatch.setattr(address_limits, "LOGIN_PAUSE_S", 0)


@pytest.mark.parametrize("encoding", ["data", "files"])
def test_right_password_is_accepted_after_failures(
    clock: list[float], few_logins: None, encoding: str
) -> None:
    """gradio's form sends its fields as parts, as files are sent."""
    app = limited(check_password)

    def log_in(number: int, name: str, password: str) -> list[int]:
        fields: dict[str, Any] = {"username": name, "password": password}
        if encoding == "files":
            fields = {key: (None, value) for key, value in fields.items()}
        options: dict[str, Any] = {encoding: fields}
        return statuses(app, number, **options | {"path": "/login"})

    assert log_in(5, "ada", "wrong") == [400, 400, 400, 429, 429]
    assert log_in(2, "ada", "right") == [200, 200]
    assert log_in(1, " ada ", "wrong") == [429]
    assert log_in(4, "ben", "wrong") == [400, 400, 400, 429]
    statuses(app, MAX_REQUESTS + 1)
    assert log_in(1, "ada", "right") == [200]


def test_logins_after_failures_are_checked_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address_limits, "MAX_LOGINS", 1)
    monkeypatch.setattr(address_limits, "LOGIN_PAUSE_S", 0.05)
    limit, active, most = address_limits.LoginLimit(), 0, 0
    limit.failures.take()

    async def log_in() -> None:
        nonlocal active, most
        async with limit.turn():
            active += 1
            most = max(most, active)
            await asyncio.sleep(0)
            active -= 1

    async def log_in_together() -> None:
        await asyncio.gather(*(log_in() for _ in range(4)))

    started = time.monotonic()
    asyncio.run(log_in_together())
    assert most == 1 and time.monotonic() - started >= 4 * 0.05


def test_large_login_is_rejected(clock: list[float]) -> None:
    with pytest.raises(HTTPException) as raised:
        statuses(limited(check_password), 1, "/login", data={"username": "a" * 20_000})
    assert raised.value.status_code == 413


def test_failed_logins_of_one_address_are_limited(
    clock: list[float], few_logins: None, caplog: pytest.LogCaptureFixture
) -> None:
    app = limited(check_password)
    with caplog.at_level(logging.INFO, "pine_explorer.logins"):
        assert statuses(app, 5, "/login") == [400, 400, 400, 429, 429]
    assert ['"login"' in message for message in caplog.messages] == [True] * 3
    assert statuses(app, 1) == [400] and statuses(app, 1, "/login", host="198.51.100.2") == [400]
    clock[0] += LOGINS_S / 3
    assert statuses(app, 2, "/login") == [400, 429]
