"""Abusive clients, for tests and for `python -m tools.load_test --attackers`."""

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import urlsplit

import httpx

from pine_engine.web.connections import REQUEST_S
from tests.support.page_client import Page
from tests.support.pdf_files import pdf_bomb

Attacker = Callable[[httpx.AsyncClient, Counter[str]], Coroutine[Any, Any, None]]
"""One round of an attack, which counts its requests by outcome."""

BURST = 36
LONG = ["The lighthouse keeper wrote a letter about the storm. " * 40 + f"Number {n}." for n in range(4)]


async def request_without_fetching(client: httpx.AsyncClient, outcomes: Counter[str]) -> None:
    """Request long answers and fetch none."""
    data = ["What is the number?", LONG, ["vanilla", "pine"], 256, "", [], {}]
    for _ in range(BURST):
        response = await client.post("/gradio_api/call/compare", json={"data": data})
        outcomes[f"never fetched: {response.status_code}"] += 1


async def invent_sessions(client: httpx.AsyncClient, outcomes: Counter[str]) -> None:
    """Send small requests, queued and unqueued in turns, each with an invented session."""
    events = (await Page.fetch(client)).events
    unqueued = next(one["id"] for one in events if not one["queue"] and one["backend_fn"])
    queued = next(one["id"] for one in events if one["queue"] and one["backend_fn"])
    for number in range(100):
        path, index = (("queue/join", queued), ("run/predict", unqueued))[number % 2]
        body = {"data": [], "fn_index": index, "session_hash": secrets.token_hex(6)}
        response = await client.post(f"/gradio_api/{path}", json=body)
        outcomes[f"invented session: {response.status_code}"] += 1


async def flood_events(client: httpx.AsyncClient, outcomes: Counter[str]) -> None:
    """Add a cheap private event to gradio's queue, each time with an invented session."""
    page = await Page.fetch(client)
    event = next(event for event in page.load_events() if event["queue"])
    for _ in range(BURST):
        body = {"data": page.values(event), "fn_index": event["id"], "session_hash": secrets.token_hex(6)}
        response = await client.post("/gradio_api/queue/join", json=body)
        outcomes[f"private event: {response.status_code}"] += 1


async def send_half_requests(client: httpx.AsyncClient, outcomes: Counter[str]) -> None:
    """Open connections and send the start of a request on each."""
    address = urlsplit(str(client.base_url))
    connections = []
    for _ in range(100):
        try:
            connections.append(await asyncio.open_connection(address.hostname, address.port))
        except OSError:
            outcomes["half request: rejected"] += 1
    for _, writer in connections:
        writer.write(b"POST /gradio_api/upload HTTP/1.1\r\nHost: localhost\r\nContent-")
    await asyncio.sleep(REQUEST_S + 5)
    for reader, writer in connections:
        is_closed = reader.at_eof() or reader.exception()
        outcomes[f"half request: {'closed' if is_closed else 'open'}"] += 1
        writer.close()


async def upload_bombs(client: httpx.AsyncClient, outcomes: Counter[str]) -> None:
    """Upload small files that unpack to large ones, and add them as documents."""
    page = await Page.fetch(client)
    event = page.event("upload")
    bomb = await asyncio.to_thread(pdf_bomb)
    files = [("files", (f"bomb{number}.pdf", bomb, "application/pdf")) for number in range(4)]
    response = await client.post("/gradio_api/upload", files=files)
    outcomes[f"upload: {response.status_code}"] += 1
    if response.status_code != httpx.codes.OK:
        return
    uploads = [{"path": path, "meta": {"_type": "gradio.FileData"}} for path in response.json()]
    session = secrets.token_hex(6)
    body = {"data": [uploads, *page.values(event)[1:]], "fn_index": event["id"], "session_hash": session}
    joined = await client.post("/gradio_api/queue/join", json=body)
    outcomes[f"parsed bomb: {joined.status_code}"] += 1
    if joined.status_code == httpx.codes.OK:
        address = f"/gradio_api/queue/data?session_hash={session}"
        async with client.stream("GET", address, timeout=120) as stream:
            async for line in stream.aiter_lines():
                if "process_completed" in line:
                    break


ATTACKERS: tuple[Attacker, ...] = (
    request_without_fetching,
    invent_sessions,
    flood_events,
    send_half_requests,
    upload_bombs,
)


async def attack(client: httpx.AsyncClient, attacker: Attacker, until: float, outcomes: Counter[str]) -> None:
    """Repeat an attack until this monotonic time; rejected and closed connections are no failure."""
    while time.monotonic() < until:
        try:
            await attacker(client, outcomes)
        except (httpx.HTTPError, OSError) as error:
            outcomes[type(error).__name__] += 1
        await asyncio.sleep(0.5)
