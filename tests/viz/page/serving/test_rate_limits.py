"""Limits of the requests of one address."""

from typing import Any

import pytest
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from viz.page.common import address_table
from viz.page.common.address_table import AddressTable
from viz.page.jobs.presence import Presence, PresenceMiddleware
from viz.page.serving.rate_limits import PERIOD_S, RateLimitMiddleware

MAX_REQUESTS = 6
JOIN = "/gradio_api/queue/join"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which the test moves on."""
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    return now


async def greet(scope: Any, receive: Any, send: Any) -> None:
    await PlainTextResponse("hi")(scope, receive, send)


def client_of(app: Any, host: str) -> TestClient:
    return TestClient(app, client=(host, 50000))


def statuses(client: TestClient, number: int, path: str = JOIN) -> list[int]:
    return [client.post(path).status_code for _ in range(number)]


def test_rate_limit_burst_used_up_rejects_until_refilled(clock: list[float]) -> None:
    client = client_of(RateLimitMiddleware(greet, MAX_REQUESTS), "198.51.100.1")
    assert statuses(client, MAX_REQUESTS + 1) == [200] * MAX_REQUESTS + [429]
    rejected = client.post(JOIN)
    assert rejected.headers["retry-after"] == str(round(PERIOD_S / MAX_REQUESTS))
    assert rejected.json()["detail"]
    clock[0] += PERIOD_S / MAX_REQUESTS
    assert statuses(client, 2) == [200, 429]
    clock[0] += 10 * PERIOD_S
    assert statuses(client, MAX_REQUESTS + 1) == [200] * MAX_REQUESTS + [429]


def test_rate_limit_of_one_address_leaves_others_alone(clock: list[float]) -> None:
    app = RateLimitMiddleware(greet, MAX_REQUESTS)
    assert statuses(client_of(app, "2001:db8:0:1::1"), MAX_REQUESTS)[-1] == 200
    assert statuses(client_of(app, "2001:db8:0:1::2"), 1) == [429]  # of the same network of 2**64 addresses
    assert statuses(client_of(app, "2001:db8:0:2::1"), 1) == [200]
    assert statuses(client_of(app, "198.51.100.1"), 1) == [200]


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
        "/login",
        "/login/",
    ],
)
def test_rate_limit_covers_path(path: str, clock: list[float]) -> None:
    client = client_of(RateLimitMiddleware(greet, 1), "198.51.100.1")
    assert statuses(client, 2, path) == [200, 429]
    assert client.get(path).status_code == 200


def test_rate_limit_counts_tool_call_once(clock: list[float]) -> None:
    """gradio answers a tool call by a request of this process to itself."""
    presence = Presence()
    app = PresenceMiddleware(RateLimitMiddleware(greet, 1), presence)
    client = client_of(app, "127.0.0.1")
    with presence.calling("198.51.100.1") as name:
        internal = [client.post(JOIN, headers={"x-pine-caller": name}).status_code for _ in range(3)]
    assert internal == [200] * 3
    forged = [client.post(JOIN, headers={"x-pine-caller": "forged"}).status_code for _ in range(2)]
    assert forged == [200, 429]


def test_address_table_is_bounded(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address_table, "MAX_ADDRESSES", 3)
    table = AddressTable(list[int], keep_s=10)
    for number in range(100):
        table.use(f"198.51.100.{number}").append(number)
    assert len(table) == 3 and table.use("198.51.100.99") == [99]
    clock[0] += 11
    assert table.use("198.51.100.99") == [] and len(table) == 1
