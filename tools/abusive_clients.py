"""Abusive clients, for tests and for `python -m tools.load_test --attackers`."""

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import urlsplit

import httpx

from pine_engine.server.connections import REQUEST_S
from tools.fuzz.corpus import pdf_bomb

Attacker = Callable[[httpx.AsyncClient, Counter[str]], Coroutine[Any, Any, None]]
"""One round of an attack; counts what came of its requests."""

BURST = 36
LONG = ["The lighthouse keeper wrote a letter about the storm. " * 40 + f"Number {n}." for n in range(4)]


async def ask_and_never_listen(client: httpx.AsyncClient, answers: Counter[str]) -> None:
    """Asks for long answers, and fetches none."""
    data = ["What is the number?", LONG, ["vanilla", "pine"], 256, "", []]
    for _ in range(BURST):
        answered = await client.post("/gradio_api/call/compare", json={"data": data})
        answers[f"asked: {answered.status_code}"] += 1


async def invent_sessions(client: httpx.AsyncClient, answers: Counter[str]) -> None:
    """Sends small requests, each for a session that never was: such that are answered, and such that wait."""
    config = (await client.get("/config")).json()
    at_once = next(one["id"] for one in config["dependencies"] if not one["queue"] and one["backend_fn"])
    waiting = next(one["id"] for one in config["dependencies"] if one["queue"] and one["backend_fn"])
    for number in range(100):
        path, index = (("queue/join", waiting), ("run/predict", at_once))[number % 2]
        body = {"data": [], "fn_index": index, "session_hash": secrets.token_hex(6)}
        answered = await client.post(f"/gradio_api/{path}", json=body)
        answers[f"invented: {answered.status_code}"] += 1


async def flood_events(client: httpx.AsyncClient, answers: Counter[str]) -> None:
    """Joins a cheap private event to gradio's queue, each time with an invented session."""
    config = (await client.get("/config")).json()
    restore = next(one for one in config["dependencies"] if one["api_name"] == "restore")
    values = {one["id"]: one["props"].get("value") for one in config["components"]}
    data = [values.get(one) for one in restore["inputs"]]
    for _ in range(BURST):
        body = {"data": data, "fn_index": restore["id"], "session_hash": secrets.token_hex(6)}
        answered = await client.post("/gradio_api/queue/join", json=body)
        answers[f"flooded: {answered.status_code}"] += 1


async def half_a_request(client: httpx.AsyncClient, answers: Counter[str]) -> None:
    """Opens connections and sends the beginning of a request on each."""
    address = urlsplit(str(client.base_url))
    opened = []
    for _ in range(100):
        try:
            opened.append(await asyncio.open_connection(address.hostname, address.port))
        except OSError:
            answers["half: refused"] += 1
    for _, writer in opened:
        writer.write(b"POST /gradio_api/upload HTTP/1.1\r\nHost: localhost\r\nContent-")
    await asyncio.sleep(REQUEST_S + 5)
    for reader, writer in opened:
        answers["half: closed" if reader.at_eof() or reader.exception() else "half: open"] += 1
        writer.close()


async def upload_bombs(client: httpx.AsyncClient, answers: Counter[str]) -> None:
    """Uploads small files that unpack into much, and has them read."""
    config = (await client.get("/config")).json()
    upload = next(
        event
        for event in config["dependencies"]
        if any(kind == "upload" for _, kind in event["targets"]) and event["backend_fn"]
    )
    bomb = await asyncio.to_thread(pdf_bomb)
    files = [("files", (f"bomb{number}.pdf", bomb, "application/pdf")) for number in range(4)]
    answered = await client.post("/gradio_api/upload", files=files)
    answers[f"uploaded: {answered.status_code}"] += 1
    if answered.status_code != httpx.codes.OK:
        return
    given = [{"path": path, "meta": {"_type": "gradio.FileData"}} for path in answered.json()]
    values = {one["id"]: one["props"].get("value") for one in config["components"]}
    data = [given, *(values.get(one) for one in upload["inputs"][1:])]
    session = secrets.token_hex(6)
    body = {"data": data, "fn_index": upload["id"], "session_hash": session}
    joined = await client.post("/gradio_api/queue/join", json=body)
    answers[f"bomb: {joined.status_code}"] += 1
    if joined.status_code == httpx.codes.OK:
        address = f"/gradio_api/queue/data?session_hash={session}"
        async with client.stream("GET", address, timeout=120) as stream:
            async for line in stream.aiter_lines():
                if "process_completed" in line:
                    break


ATTACKERS: tuple[Attacker, ...] = (
    ask_and_never_listen,
    invent_sessions,
    flood_events,
    half_a_request,
    upload_bombs,
)


async def attack(
    client: httpx.AsyncClient, attacker: Attacker, until: Callable[[], bool], answers: Counter[str]
) -> None:
    """Attacks again and again until the time is over; what the server does to it is no fault."""
    while not until():
        try:
            await attacker(client, answers)
        except (httpx.HTTPError, OSError) as error:
            answers[type(error).__name__] += 1
        await asyncio.sleep(0.5)
