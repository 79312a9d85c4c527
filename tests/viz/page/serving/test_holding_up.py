"""The served page under load, and when clients disconnect or stop: no hang, no work for a closed page."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import psutil
import pytest

from tests.support.page_client import PageSession, compare, question_of
from tests.support.serving import ServedApp
from tests.support.tiers import first_daily
from tests.support.visiting import LONG, ask, visiting
from tools.load_test import measure

IDLE_SHARE = 0.4  # of a core: more than a server that waits needs, less than a model that computes
MOST_STEPS_S = 10.0  # timeout of a few layers of a long prompt, in seconds, on a busy machine


def seconds_until_idle(app: ServedApp) -> float:
    """Wait until the server is idle, at most 60 s. Return the seconds."""
    process, began = psutil.Process(app.process.pid), time.monotonic()
    while time.monotonic() - began < 60:
        before, at = sum(process.cpu_times()[:2]), time.monotonic()
        time.sleep(0.5)
        if sum(process.cpu_times()[:2]) - before < IDLE_SHARE * (time.monotonic() - at):
            return at - began
    return 60.0


async def leave_a_run(app: ServedApp, words: str) -> None:
    async with visiting(app) as (client, page):
        session = PageSession(client, page)
        await session.open()
        async with aclosing(session.submit("run", LONG)) as shown:
            async for status, _ in shown:
                if words in status:
                    return


async def leave_a_call(app: ServedApp, words: str) -> None:
    async with visiting(app) as (client, _):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(compare(client, LONG), 3)


@pytest.mark.parametrize(
    ("leave", "words"),
    first_daily([(leave_a_run, "reading documents"), (leave_a_run, "Generating"), (leave_a_call, "")]),
)
def test_run_of_disconnected_client_ends(
    leave: Callable[[ServedApp, str], Coroutine[Any, Any, None]], words: str, app: ServedApp
) -> None:
    asyncio.run(leave(app, words))
    assert seconds_until_idle(app) < MOST_STEPS_S
    assert asyncio.run(ask(app))  # the model is free for the next run


@pytest.mark.slow
@pytest.mark.parametrize(
    ("button", "stop", "words"),
    [
        ("run", "stop", "Starting"),
        ("run", "stop", "Generating"),
        ("shuffle", "stop-shuffle", "generating answers"),
    ],
)
def test_stop_ends_run_at_every_stage(button: str, stop: str, words: str, app: ServedApp) -> None:
    request = question_of(2) if button == "shuffle" else LONG

    async def run_and_stop() -> tuple[str, float]:
        async with visiting(app) as (client, page):
            session = PageSession(client, page)
            await session.open()
            pressed = status = ""
            at = 0.0
            async for status, _ in session.submit(button, request):
                if not pressed and words in status:
                    pressed, at = status, time.monotonic()
                    await session.send(page.click_event(stop))
            return status, time.monotonic() - at

    status, seconds = asyncio.run(run_and_stop())
    assert "Stopped" in status and seconds < MOST_STEPS_S
    assert seconds_until_idle(app) < MOST_STEPS_S


def test_page_of_earlier_server_still_runs(app: ServedApp) -> None:
    """The server has not opened this page, so only the sent values are known."""

    async def run_unopened() -> str:
        async with visiting(app) as (client, page):
            return (await PageSession(client, page).run(question_of(1))).status

    assert "Done:" in asyncio.run(run_unopened())


def test_equal_requests_of_page_and_api_are_computed_once(app: ServedApp) -> None:
    request = replace(LONG, methods=("pine",), tokens=8)

    async def concurrently() -> list[Any]:
        async with visiting(app) as (client, page):
            sessions = [PageSession(client, page) for _ in range(2)]
            pages: Any = [session.run(request) for session in sessions]
            calls: Any = [compare(client, request) for _ in range(2)]
            first, second, *called = await asyncio.gather(*pages, *calls)
            return [first.by_method, second.by_method, *called]

    before = len(app.log.read_text())
    answers = asyncio.run(concurrently())
    lines = [json.loads(line) for line in app.log.read_text()[before:].splitlines()]
    assert all(answer == answers[0] for answer in answers) and answers[0]["pine"]
    ended = Counter((line["operation"], line["outcome"], line["shared"]) for line in lines)
    expected = {(what, "done", shared): 1 for what in ("compare", "api compare") for shared in (True, False)}
    assert ended.items() >= expected.items()  # and answers without each document, if no other run is open


@pytest.mark.slow
def test_concurrent_visitors_get_their_own_answers(app: ServedApp) -> None:
    measured = measure(app.url, app.process.pid, clients=3, seconds=4, files=app.log.parent)
    report = asyncio.run(measured)
    assert report.figures["runs"] > 0 and report.faults == []
