"""Guessing the password of a page that asks for one."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse

from tests.support.serving import Serve, ServedApp
from tests.viz.page.serving.test_doors import NO_MODEL
from viz.page.serving.login_limits import FREE_FAILURES, MAX_WAIT_S, LoginLimitMiddleware

PASSWORD = "lovelace: x"


@pytest.fixture(scope="module")
def app(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApp]:
    log = tmp_path_factory.mktemp("login") / "log"
    with serve(log, *NO_MODEL, environment={"PINE_AUTH": f"ada:{PASSWORD}"}) as served:
        yield served


@pytest.mark.slow
def test_login_guesses_are_slowed_down_and_logged(app: ServedApp) -> None:
    answers, last = Counter[int](), None
    with httpx.Client(base_url=app.url, timeout=60) as client:
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            last = client.post("/login", data={"username": "ada", "password": "guess-4711"})
            answers[last.status_code] += 1
            time.sleep(0.01)  # stay below the rate limit, whose Retry-After is shorter
        assert answers[400] <= 7 and answers[429] > 0 and set(answers) == {400, 429}
        assert last is not None
        time.sleep(int(last.headers["retry-after"]))
        assert client.post("/login", data={"username": "ada", "password": PASSWORD}).status_code == 200
    log = app.log.read_text()
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    assert [(line["operation"], line["address"]) for line in lines] == [("login", "127.0.0.1")] * answers[400]
    assert "guess-4711" not in log and "ada" not in log and PASSWORD not in log


# without a server


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which the test moves on."""
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    return now


@pytest.fixture
def limited(clock: list[float]) -> LoginLimitMiddleware:
    async def check(scope: Any, receive: Any, send: Any) -> None:
        body = await Request(scope, receive).body()
        await asyncio.sleep(0)
        await PlainTextResponse("", 200 if body == PASSWORD.encode() else 400)(scope, receive, send)

    return LoginLimitMiddleware(check)


async def attempts(app: Any, *passwords: str, host: str = "198.51.100.1") -> list[int]:
    """Statuses of logins that are sent at once."""
    transport = httpx.ASGITransport(app, client=(host, 50000))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        answers = await asyncio.gather(*(client.post("/login", content=one) for one in passwords))
    return [answer.status_code for answer in answers]


def test_login_guesses_sent_at_once_reach_check_one_by_one(limited: LoginLimitMiddleware) -> None:
    async def sent() -> None:
        statuses = await attempts(limited, *(["guess"] * 50))
        assert Counter(statuses) == {400: FREE_FAILURES, 429: 50 - FREE_FAILURES}
        assert await attempts(limited, PASSWORD, host="198.51.100.2") == [200]

    asyncio.run(sent())


def test_login_wait_doubles_up_to_maximum(limited: LoginLimitMiddleware, clock: list[float]) -> None:
    async def waited() -> float:
        began = clock[0]
        while await attempts(limited, "guess") == [429]:
            clock[0] += 0.5
        return clock[0] - began

    async def all_waits() -> list[float]:
        await attempts(limited, *(["guess"] * FREE_FAILURES))
        return [await waited() for _ in range(8)]

    assert asyncio.run(all_waits()) == [1, 2, 4, 8, 16, 32, MAX_WAIT_S, MAX_WAIT_S]


def test_login_success_resets_wait(limited: LoginLimitMiddleware) -> None:
    async def sent() -> None:
        await attempts(limited, *(["guess"] * (FREE_FAILURES - 1)))
        assert await attempts(limited, *([PASSWORD] * 30)) == [200] * 30
        assert await attempts(limited, *(["guess"] * FREE_FAILURES)) == [400] * FREE_FAILURES

    asyncio.run(sent())
