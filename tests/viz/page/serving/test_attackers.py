"""Abusive clients: other clients still get answers, and no work runs without a listener."""

import asyncio
import contextlib
import json
import secrets
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median

import httpx
import psutil
import pytest
from mcp import ClientSession
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from tests.support.abusive_clients import attack, flood_events, invent_sessions, request_without_fetching
from tests.support.page_client import LostError, PageSession, question_of
from tests.support.pdf_files import pdf_of_comments
from tests.support.serving import ServedApp
from tests.support.visiting import LONG, visiting
from viz.page.files.limited_process import Limits
from viz.page.jobs.connection_tracker import LISTENING_S

FLOOD_S = 1.5

SLOW_S = 30.0  # timeout of a few layers, in seconds, on a busy machine


def wait_until_idle(app: ServedApp) -> float:
    """Wait until nothing runs or waits. Return the seconds."""
    began = time.monotonic()
    while any(httpx.get(f"{app.url}health", timeout=10).json()[name] for name in ("running", "waiting")):
        assert time.monotonic() - began < LISTENING_S + SLOW_S
        time.sleep(0.2)
    return time.monotonic() - began


def outcomes(app: ServedApp) -> list[tuple[str, str]]:
    lines = [json.loads(line) for line in app.log.read_text().splitlines() if line.startswith("{")]
    return [(line["operation"], line["outcome"]) for line in lines]


async def run_on_the_page(app: ServedApp) -> str:
    """Return the last status of a run in a new session."""
    async with visiting(app) as (client, page):
        session = PageSession(client, page)
        async with session.heartbeat():
            await session.open()
            return (await session.run(question_of(2))).status


@pytest.mark.slow
def test_unfetched_calls_do_not_block_visitors(app: ServedApp) -> None:
    async def attacked() -> tuple[Counter[str], str]:
        answers: Counter[str] = Counter()
        async with visiting(app) as (client, _):
            await request_without_fetching(client, answers)
            return answers, await run_on_the_page(app)

    before = len(outcomes(app))
    answers, status = asyncio.run(attacked())
    assert "Done:" in status
    wait_until_idle(app)
    ended = Counter(outcomes(app)[before:])
    assert sum(answers.values()) == 36 and ended["api compare", "done"] == 0
    assert ended["api compare", "disconnected"] <= 4 and ended["compare", "done"] == 1


@pytest.mark.slow
def test_invented_sessions_are_cheap_and_evict_no_page(app: ServedApp) -> None:
    memory = psutil.Process(app.process.pid).memory_info

    async def attacked() -> tuple[float, str]:
        async with visiting(app) as (client, page):
            session = PageSession(client, page)
            async with session.heartbeat():
                await session.open()
                await session.run(question_of(3))
                await invent_sessions(client, Counter())
                before = memory().rss
                for _ in range(5):
                    await invent_sessions(client, Counter())
                grown = (memory().rss - before) / 1e6
                sent_request = session.submit("shuffle", question_of(3))
                status = ""
                async with contextlib.aclosing(sent_request) as shown:
                    async for status, _ in shown:
                        if "generating answers" in status:
                            break
                return grown, status

    grown, status = asyncio.run(attacked())
    assert grown < 60
    assert "generating answers" in status
    wait_until_idle(app)


@pytest.mark.slow
def test_mcp_client_that_hangs_up_ends_run(app: ServedApp) -> None:
    async def hang_up() -> None:
        async with (
            streamable_http_client(f"{app.url}gradio_api/mcp/") as (read, write, *_),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            sent_request = {
                "question": LONG.question,
                "documents": list(LONG.documents),
                "max_new_tokens": 500,
            }
            await session.call_tool("shuffle", sent_request | {"methods": ["vanilla", "pine"], "orders": 6})

    async def call() -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(hang_up(), 8)

    before = len(outcomes(app))
    asyncio.run(call())
    wait_until_idle(app)
    # The disconnect of a client of the previous test may be detected only now.
    ended = [(what, how) for what, how in outcomes(app)[before:] if what.startswith("api")]
    assert ended == [("api shuffle", "disconnected")]


@pytest.mark.parametrize("path", ["run/compare", "api/compare"])
def test_a_call_goes_through_the_line(path: str, app: ServedApp) -> None:
    data = {"data": ["What?", list(LONG.documents), ["pine"], 4, "", [], {}]}
    answered = httpx.post(f"{app.url}gradio_api/{path}", json=data, timeout=60)
    assert answered.status_code == 404 and "join the queue" in answered.text


def test_api_documentation_names_the_address_of_each_client(app: ServedApp) -> None:
    for host in ("127.0.0.1:1", "localhost:2"):
        record = httpx.get(f"{app.url}gradio_api/info", headers={"Host": host}, timeout=60)
        assert f"http://{host}" in record.text
    record = httpx.get(f"{app.url}gradio_api/info", timeout=60)
    assert "127.0.0.1:1/" not in record.text and app.url.rstrip("/") in record.text


@pytest.mark.slow
def test_event_queue_flooded_by_client_rejects_no_visitor(app: ServedApp) -> None:
    async def attacked() -> tuple[Counter[int], list[float]]:
        until = time.monotonic() + FLOOD_S
        joins, waits = Counter[int](), []
        async with (
            visiting(app, "203.0.113.9") as (attacker, _),
            visiting(app, "198.51.100.9") as (client, page),
            asyncio.TaskGroup() as there,
        ):
            for _ in range(6):
                there.create_task(attack(attacker, flood_events, until, Counter()))
            queued = next(event for event in page.load_events() if event["queue"])
            while time.monotonic() < until:
                began = time.monotonic()
                session = PageSession(client, page)
                try:
                    await session.send(queued)
                    joins[200] += 1
                except LostError as error:
                    joins[503] += "503" in str(error)
                waits.append(time.monotonic() - began)
                await asyncio.sleep(0.05)
        return joins, waits

    joins, waits = asyncio.run(attacked())
    assert joins[200] and not joins[503]
    assert max(waits) < FLOOD_S


def test_private_events_flooded_by_client_delay_visitor_little(app: ServedApp) -> None:
    """The client sends as many requests at once as it has connections, past the queue."""

    async def attacked() -> tuple[list[float], list[float]]:
        until = time.monotonic() + FLOOD_S
        attacker_waits, visitor_waits = [], []
        async with (
            visiting(app, "203.0.113.10") as (attacker, page),
            visiting(app, "198.51.100.10") as (client, _),
            asyncio.TaskGroup() as there,
        ):
            restore = page.event("restore")

            async def restored(by: httpx.AsyncClient) -> float:
                began = time.monotonic()
                session = secrets.token_hex(6)
                body = {"data": page.values(restore), "fn_index": restore["id"], "session_hash": session}
                (await by.post("/gradio_api/run/predict", json=body)).raise_for_status()
                return time.monotonic() - began

            async def flood() -> None:
                while time.monotonic() < until:
                    attacker_waits.append(await restored(attacker))

            for _ in range(100):
                there.create_task(flood())
            while time.monotonic() < until:
                visitor_waits.append(await restored(client))
        return attacker_waits, visitor_waits

    attacker_waits, visitor_waits = asyncio.run(attacked())
    assert median(visitor_waits) < median(attacker_waits) / 2


FILE = {"meta": {"_type": "gradio.FileData"}}  # a file object in the sense of gradio, with a path
SPELLINGS: dict[str, Callable[[str], str]] = {
    "plain": lambda message: message,
    "escaped": lambda message: message.replace('"path"', '"p\\u0061th"'),
    "twice": lambda message: message.replace('"path"', '"path": 1, "path"'),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_mcp_call_with_file_object_reads_no_file(spelling: str, app: ServedApp, tmp_path: Path) -> None:
    there, missing = tmp_path / "host-secret.txt", tmp_path / "missing.txt"
    there.write_text("secret")
    headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    answers = []
    for path in (there, missing):
        file = FILE | {"path": str(path)}
        call = {"name": "compare", "arguments": {"question": "Who?", "documents": ["Ada.", file]}}
        message = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call})
        content = SPELLINGS[spelling](message)
        answered = httpx.post(f"{app.url}gradio_api/mcp/", headers=headers, content=content, timeout=60)
        answers.append(json.loads(answered.text.partition("data: ")[2])["result"])
    assert answers[0] == answers[1] and answers[0]["isError"]
    assert not list((app.log.parent / "files").rglob(there.name))


def test_mcp_call_with_file_object_over_sse_reads_no_file(app: ServedApp, tmp_path: Path) -> None:
    file = tmp_path / "host-secret.txt"
    file.write_text("secret")

    async def called() -> bool:
        async with sse_client(f"{app.url}gradio_api/mcp/sse") as streams, ClientSession(*streams) as session:
            await session.initialize()
            arguments = {"question": "Who?", "documents": [FILE | {"path": str(file)}]}
            return (await session.call_tool("compare", arguments)).isError

    assert asyncio.run(called())
    assert not list((app.log.parent / "files").rglob(file.name))


def test_api_call_with_file_object_is_rejected(app: ServedApp) -> None:
    uploaded = httpx.post(f"{app.url}gradio_api/upload", files={"files": ("a.txt", b"a")}).json()[0]
    answers = set()
    for path in (uploaded, f"{uploaded}-missing", "/etc/passwd", "/etc/missing"):
        data = ["Who?", ["Ada.", FILE | {"path": path}], ["pine"], 2, "", [], {}]
        call = f"{app.url}gradio_api/call/compare"
        event = httpx.post(call, json={"data": data}).json()["event_id"]
        answers.add(httpx.get(f"{call}/{event}", timeout=60).text)
    (answer,) = answers
    assert "event: error" in answer and "path" in answer


# log


def test_client_text_in_a_body_begins_no_log_line(app: ServedApp) -> None:
    forged = '\n{"what": "forged"}\x1b[31m'
    with httpx.Client(base_url=f"{app.url}gradio_api/", timeout=60) as client:
        for field in ("session_hash", "event_id", "event_data"):
            client.post("queue/join", json={"data": [], "fn_index": 0, field: forged})
        headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        tool = {"name": forged, "arguments": {}}
        for message in ({"method": forged}, {"method": "tools/call", "params": tool}):
            client.post("mcp/", json={"jsonrpc": "2.0", "id": 1} | message, headers=headers)
        for content in (b"\xff", b"[" * 1_000_000):
            assert client.post("mcp/", content=content, headers=headers).is_error
    log = app.log.read_text()
    assert "\x1b" not in log and "Traceback" not in log
    assert not any("forged" in line for line in log.splitlines() if line.startswith("{"))


# files


def test_closed_page_ends_parsing(app: ServedApp) -> None:
    page = psutil.Process(app.process.pid)
    with httpx.Client(base_url=f"{app.url}gradio_api/", timeout=60) as http:
        events = http.get("../config").json()["dependencies"]
        (event,) = (one for one in events if one["api_name"] == "upload")
        (path,) = http.post("upload", files={"files": ("a.pdf", pdf_of_comments())}).json()
        body = {"fn_index": event["id"], "data": [[FILE | {"path": path}]], "session_hash": "upload"}
        assert http.post("queue/join", json=body).status_code == 200
        with http.stream("GET", "queue/data", params={"session_hash": "upload"}):
            while not page.children():
                time.sleep(0.05)
    left = time.monotonic()
    while page.children():
        assert time.monotonic() - left < Limits().cpu_s / 2
        time.sleep(0.05)
    while ("read documents", "disconnected") not in outcomes(app):
        time.sleep(0.05)
