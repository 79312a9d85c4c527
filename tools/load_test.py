"""Test one server under load: `make load`, or `python -m tools.load_test --visitors 50 --minutes 5`.

Each client has its own documents and sends its request repeatedly: nine of ten as the page does, with a new
session after a few runs, and one of ten to the public API. Every answer is compared with the answer to the
same request on the idle server. Abusive clients run in addition, unless `--no-attackers` is set. All requests
come through a proxy, each client from its own address. With `--burst`, clients start one run each at once.

Locust is not used: gevent patches sockets, and the client of the page (`tests/support/page_client.py`) uses
asyncio.
"""

import asyncio
import json
import os
import random
import re
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Annotated, Any, Literal, NamedTuple

import httpx
import psutil
import typer

from pine_engine.cli import output
from pine_engine.cli.options import AsJson
from tests.support.abusive_clients import ATTACKERS, attack
from tests.support.chromium import chromium_path, started_chromium
from tests.support.page_client import (
    ANSWER,
    LostError,
    Page,
    PageSession,
    Question,
    compare,
    number_of,
    question_of,
)
from tests.support.serving import started_app

CLIENTS_PER_SCRIPT = 10
"""Of this number of clients, one calls the public API."""

RUNS_PER_SESSION = 3
MAX_PAUSE_S = 2.0
"""Maximum pause between two runs of a client."""

ARRIVAL_S = 20.0
"""Time in which the clients start; at most a quarter of the test."""

HOST = "load.test"
"""Name of another host, so that the page is public."""

QUEUE_FULL = "The queue for the model is full"
GUEST = re.compile(r"guest number (\d{4})")

MAX_INTERVAL_S = 1.0
MAX_GROWTH_MB = 50.0
MAX_DISK_MB = 100.0

NUM_PAGE_LOADS = 5
IS_LOADED = """
[document.querySelector(".page-guess ins"), document.querySelector(".page-guess li")]
  .every((element) => element?.offsetParent && element.innerText) && performance.now()
"""
"""Milliseconds from the start of the navigation until a first visitor sees an answer and a document."""

Same = Literal["example", "shuffle", "none"]
"""Requests of a burst: the first example, its shuffle test, or its documents and different questions."""


class Report(NamedTuple):
    """Figures of a measurement, and its failed checks in words. Times in seconds, sizes in megabytes."""

    figures: dict[str, Any]
    faults: list[str]


@dataclass
class Load:
    """Clients that send requests until a time, and their results.

    Attributes:
        page: Page that the clients open.
        until: End of the test, in seconds of `time.monotonic()`.
        counts: Finished runs, API calls, requests that were rejected because the queue was full (`full`),
            sessions that received text about the documents of another client (`foreign`), and answers that
            differ from those of the idle server (`different`).
        times: Seconds of a run, between two updates of a run, to open the page, and of another event.
        attacks: Requests of abusive clients by outcome.
    """

    page: Page
    until: float
    counts: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    times: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    attacks: Counter[str] = field(default_factory=Counter)

    async def use_page(self, client: httpx.AsyncClient, guest: int, expected: dict[str, str]) -> None:
        """Run the request of a client on the page until the end, with a new session after a few runs."""
        random_ = random.Random(guest)
        await asyncio.sleep(random_.uniform(0, min(ARRIVAL_S, (self.until - time.monotonic()) / 4)))
        while time.monotonic() < self.until:
            session = PageSession(client, self.page)
            with self._counted_errors():
                async with session.heartbeat():
                    await self._timed("page", session.open())
                    for _ in range(RUNS_PER_SESSION):
                        await asyncio.sleep(random_.uniform(0, MAX_PAUSE_S))
                        if time.monotonic() < self.until:
                            await self._run(session, question_of(guest), expected)
            allowed = {str(number_of(guest)), *GUEST.findall(" ".join(expected.values()))}
            self.counts["foreign"] += not allowed.issuperset(GUEST.findall(" ".join(session.messages)))

    async def call_api(self, client: httpx.AsyncClient, guest: int, expected: dict[str, str]) -> None:
        """Send the request of a client to the public API until the end."""
        while time.monotonic() < self.until:
            with self._counted_errors():
                answers = await compare(client, question_of(guest))
                self.counts["calls"] += 1
                self.counts["different"] += answers != expected
            await asyncio.sleep(MAX_PAUSE_S)

    async def _run(self, session: PageSession, request: Question, expected: dict[str, str]) -> None:
        updates = await session.run(request)
        self.times["interval"] += updates.intervals
        with self._counted_errors():
            if "Done:" not in updates.status:
                raise LostError(f"the run ended with: {updates.status}")
            self.counts["runs"] += 1
            self.times["run"].append(updates.times[-1])
            self.counts["different"] += updates.by_method != expected
        await self._timed("event", session.count_tokens(request))

    async def _timed(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        began = time.monotonic()
        await work
        self.times[name].append(time.monotonic() - began)

    @contextmanager
    def _counted_errors(self) -> Iterator[None]:
        """Count an error of the block, or a rejection because the queue was full."""
        try:
            yield
        except (LostError, httpx.HTTPError) as error:
            if QUEUE_FULL in str(error):
                self.counts["full"] += 1
            else:
                self.errors[f"{type(error).__name__}: {error}"] += 1


async def measure(
    url: str, pid: int, clients: int, seconds: float, *, files: Path, attackers: bool = False
) -> Report:
    """Measure the server under load, after one request of each client on the idle server.

    Args:
        url: Address of the server.
        pid: Process of the server.
        clients: Number of clients.
        seconds: Duration of the load.
        files: Folder of the server's uploaded and created files.
        attackers: Run abusive clients in addition.
    """
    async with AsyncExitStack() as stack, httpx.AsyncClient(base_url=url, timeout=60) as idle_client:
        page = await Page.fetch(idle_client)
        expected = [await compare(idle_client, question_of(guest)) for guest in range(clients)]
        load = Load(page, time.monotonic() + seconds)
        memory, disk = list[float](), list[float]()
        monitor = asyncio.create_task(_monitor(psutil.Process(pid), files, memory, disk))
        async with asyncio.TaskGroup() as tasks:
            for guest in range(clients):
                client = await stack.enter_async_context(_client(url, f"198.51.100.{guest % 250 + 1}"))
                is_script = guest % CLIENTS_PER_SCRIPT == CLIENTS_PER_SCRIPT - 1
                work = load.call_api if is_script else load.use_page
                tasks.create_task(work(client, guest, expected[guest]))
            for number, attacker in enumerate(ATTACKERS if attackers else (), start=1):
                client = await stack.enter_async_context(_client(url, f"203.0.113.{number}"))
                tasks.create_task(attack(client, attacker, load.until, load.attacks))
        monitor.cancel()
    counts, errors = load.counts, dict(load.errors)
    times = {name: _summary(load.times[name]) for name in ("run", "interval", "page", "event")}
    memory_after_one_minute, memory_at_end = memory[min(60, len(memory) // 2)], memory[-1]
    growth, interval = memory_at_end - memory_after_one_minute, times["interval"]["median"]
    checks = {
        "no run was finished": not counts["runs"],
        f"errors: {errors}": errors,
        f"{counts['foreign']} sessions received text of other clients": counts["foreign"],
        f"{counts['different']} answers differ from those of the idle server": counts["different"],
        f"median time between two updates: {interval:.2f} s": interval >= MAX_INTERVAL_S,
        f"memory grew by {growth:.0f} MB": growth >= MAX_GROWTH_MB,
        f"files of clients took {max(disk):.0f} MB": max(disk) >= MAX_DISK_MB,
    }
    figures = {
        "clients": clients,
        "minutes": seconds / 60,
        "load_average": os.getloadavg()[0],
        **{name: counts[name] for name in ("runs", "calls", "full", "foreign", "different")},
        "errors": errors,
        **{f"{name}_{part}": value for name, parts in times.items() for part, value in parts.items()},
        "memory_after_one_minute": memory_after_one_minute,
        "memory_at_end": memory_at_end,
        "disk_max": max(disk),
        "attacks": dict(load.attacks),
    }
    return Report(figures, [sentence for sentence, is_failed in checks.items() if is_failed])


def _client(url: str, address: str) -> httpx.AsyncClient:
    """Return a client behind a proxy. Its connections expire before the server closes them."""
    limits = httpx.Limits(max_connections=None, keepalive_expiry=2)
    headers = {"X-Forwarded-For": address}
    return httpx.AsyncClient(base_url=url, timeout=60, limits=limits, headers=headers)


async def _monitor(process: psutil.Process, files: Path, memory: list[float], disk: list[float]) -> None:
    """Record the memory of a process and the size of a folder every second."""
    while True:
        memory.append(process.memory_info().rss / 1e6)
        disk.append(sum(_size(file) for file in files.rglob("*")) / 1e6)
        await asyncio.sleep(1)


def _size(file: Path) -> int:
    with suppress(OSError):  # the server has removed it
        return file.stat().st_size
    return 0


def _summary(times: Sequence[float]) -> dict[str, float]:
    """Return median, 95th percentile and maximum; 0 without a value."""
    values = times or [0.0]
    p95 = quantiles(values, n=20)[-1] if len(values) > 1 else values[0]
    return {"median": median(values), "p95": p95, "max": max(values)}


async def measure_burst(url: str, log: Path, clients: int, same: Same, rounds: int) -> Report:
    """Measure runs that start at the same moment, each round after a run on the idle server.

    `ratio` is the median over the rounds of the time of the last run (`last`) relative to a single run
    (`alone`); `computed` is the number of runs that the server computed, the other ones followed them.

    Args:
        url: Address of the server.
        log: Log of the server.
        clients: Number of concurrent runs.
        same: Equal part of the requests.
        rounds: Number of measurements.
    """
    errors = Counter[str]()
    alone, last, computed = list[float](), list[float](), list[int]()
    async with AsyncExitStack() as stack, httpx.AsyncClient(base_url=url, timeout=60) as first:
        page = await Page.fetch(first)
        sessions = []
        for number in range(clients):
            client = await stack.enter_async_context(_client(url, f"198.51.100.{number % 250 + 1}"))
            session = PageSession(client, page)
            await stack.enter_async_context(session.heartbeat())
            await session.open()
            sessions.append(session)
        await _start(sessions[0], page, "example", 0)  # loads the model
        others = range(1, clients) if same == "none" else ()
        results = [(await _start(sessions[0], page, same, number))[1] for number in others]
        different = 0
        for _ in range(rounds):
            seconds, result = await _start(sessions[0], page, same, 0)
            alone.append(seconds)
            expected = [result, *results]
            log_size = len(log.read_text())
            runs = [_start(session, page, same, number) for number, session in enumerate(sessions)]
            outcomes = await asyncio.gather(*runs, return_exceptions=True)
            seconds = 0.0
            for number, outcome in enumerate(outcomes):
                if isinstance(outcome, BaseException):
                    errors[f"{type(outcome).__name__}: {outcome}"] += 1
                    continue
                seconds = max(seconds, outcome[0])
                different += outcome[1] != expected[number % len(expected)]
            last.append(seconds)
            lines = log.read_text()[log_size:].splitlines()
            computed.append(sum(not json.loads(one).get("shared") for one in lines if one.startswith("{")))
    figures = {
        "clients": clients,
        "same": same,
        "load_average": os.getloadavg()[0],
        "alone": alone,
        "last": last,
        "ratio": median(one / other for one, other in zip(last, alone, strict=True)),
        "computed": computed,
        "different": different,
        "errors": dict(errors),
    }
    faults = [f"{different} answers differ from those of the idle server"] if different else []
    return Report(figures, faults + [f"errors: {dict(errors)}"] * bool(errors))


async def _start(session: PageSession, page: Page, same: Same, number: int) -> tuple[float, Any]:
    """Return the time of one run of a burst and its results, as the page shows them."""
    button = "shuffle" if same == "shuffle" else "run"
    (question,) = (one["value"] for one in page.components.values() if one.get("elem_id") == "question")
    changes = {"question": f"{question} ({number})"} if same == "none" else {}
    values = page.values(page.click_event(button), **changes)
    began = time.monotonic()
    statuses = [status async for status, _ in session.start(button, values)]
    seconds = time.monotonic() - began
    if "Done:" not in statuses[-1]:
        raise LostError(f"the run ended with: {statuses[-1]}")
    html = session.html
    return seconds, html["order-table"] if same == "shuffle" else ANSWER.findall(html["answers"])


def measure_page_load(url: str, path: str) -> float:
    """Return the median seconds in which a new browser shows an answer and a document.

    Args:
        url: Address of the idle server.
        path: Executable of Chromium.
    """
    seconds: list[float] = []
    with started_chromium(path) as browser:
        for _ in range(NUM_PAGE_LOADS):
            with browser.new_context() as context:
                page = context.new_page()
                page.goto(url, wait_until="commit")
                seconds.append(page.wait_for_function(IS_LOADED, polling="raf").json_value() / 1000)
    return median(seconds)


def load_test(
    visitors: Annotated[int, typer.Option(help="Number of clients.", min=1)] = 50,
    minutes: Annotated[float, typer.Option(help="Duration of the load in minutes.", min=0.05)] = 5.0,
    attackers: Annotated[bool, typer.Option(help="Run abusive clients in addition.")] = True,
    burst: Annotated[
        int, typer.Option(help="Number of clients that start a run at the same moment, instead.", min=0)
    ] = 0,
    same: Annotated[Same, typer.Option(help="Equal part of the requests of a burst.")] = "example",
    rounds: Annotated[int, typer.Option(help="Number of bursts, each after a single run.", min=1)] = 3,
    as_json: AsJson = False,
) -> None:
    """Test a server on this machine with concurrent clients, and report failed checks."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = {"PINE_ALLOWED_HOSTS": f"127.0.0.1,{HOST}", "GRADIO_TEMP_DIR": f"{folder}/files"}
        with started_app(folder / "app.log", environment=environment) as app:
            path = chromium_path()
            page_load = {"page_load_in_chromium": measure_page_load(app.url, path)} if path else {}
            figures, faults = asyncio.run(
                measure_burst(app.url, app.log, burst, same, rounds)
                if burst
                else measure(
                    app.url, app.process.pid, visitors, 60 * minutes, files=folder, attackers=attackers
                )
            )
            if "Traceback" in app.log.read_text():
                faults.append("a traceback in the log of the server")
    figures |= page_load
    rows = [{"figure": name.replace("_", " "), "value": value} for name, value in figures.items()]
    output.print_result(output.CommandResult(figures, rows, faults, int(bool(faults))), as_json=as_json)


if __name__ == "__main__":
    typer.run(load_test)
