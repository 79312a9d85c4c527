"""Test one server under load: `make load`, or `python -m tools.load_test --visitors 50 --minutes 5`.

Each client has its own documents and sends its request repeatedly: nine of ten as the page does, with a new
session after a few runs, and one of ten to the public API. Every answer is compared with the answer to the
same request on the idle server. Abusive clients run in addition, unless `--no-attackers` is set. All requests
come through a proxy, each client from its own address.
"""

import asyncio
import os
import random
import re
import tempfile
import time
from collections import Counter
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Annotated, Any

import httpx
import psutil
import typer

from pine_engine.cli import output
from pine_engine.cli.options import AsJson
from tests.support.serving import started_app
from tools.abusive_clients import ATTACKERS, attack
from tools.load_burst import BurstReport, Same, measure_burst
from tools.load_clients import LostError, Page, PageSession, Question, compare

METHODS = ("vanilla", "pine")
NEW_TOKENS = 8
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
WORDS = ("maple", "river", "copper", "violin", "candle", "harbor", "lemon", "saddle", "tunnel", "walnut")
GUEST = re.compile(r"guest number (\d{4})")

MAX_INTERVAL_S = 1.0
MAX_GROWTH_MB = 50.0
MAX_DISK_MB = 100.0


@dataclass
class Totals:
    """Results of all clients. Times in seconds; `interval` holds those between two updates of a run."""

    runs: int = 0
    calls: int = 0
    full: int = 0
    foreign: int = 0
    different: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    interval: list[float] = field(default_factory=list)
    page: list[float] = field(default_factory=list)
    event: list[float] = field(default_factory=list)
    run: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Report:
    """Results of a load test. Times in seconds, resident memory and disk use in megabytes.

    Attributes:
        full: Requests that were rejected because the queue was full.
        foreign: Sessions that received text about the documents of another client.
        different: Answers that differ from those of the idle server.
        attacks: Requests of abusive clients by outcome.
    """

    clients: int
    minutes: float
    load_average: float
    runs: int
    calls: int
    full: int
    errors: dict[str, int]
    foreign: int
    different: int
    run_median: float
    interval_median: float
    interval_p95: float
    interval_max: float
    page_median: float
    page_p95: float
    event_median: float
    event_p95: float
    memory_after_one_minute: float
    memory_at_end: float
    disk_max: float
    attacks: dict[str, int]

    @property
    def faults(self) -> list[str]:
        """Return the failed checks, in words."""
        growth = self.memory_at_end - self.memory_after_one_minute
        return [
            sentence
            for failed, sentence in (
                (not self.runs, "no run was finished"),
                (self.errors, f"errors: {self.errors}"),
                (self.foreign, f"{self.foreign} sessions received text of other clients"),
                (self.different, f"{self.different} answers differ from those of the idle server"),
                (
                    self.interval_median >= MAX_INTERVAL_S,
                    f"median time between two updates: {self.interval_median:.2f} s",
                ),
                (growth >= MAX_GROWTH_MB, f"memory grew by {growth:.0f} MB"),
                (self.disk_max >= MAX_DISK_MB, f"files of clients took {self.disk_max:.0f} MB"),
            )
            if failed
        ]


def number_of(guest: int) -> int:
    """Return the number in the prompt of a client: four digits, so that a partial one is not a number."""
    return 1000 + guest


def question_of(guest: int) -> Question:
    """Return the request of a client. All clients have different documents."""
    number, word = number_of(guest), WORDS[guest % len(WORDS)]
    documents = (
        f"The password of guest number {number} is {word}.",
        "The house was painted blue last summer.",
        f"Breakfast for guest number {number} is served at {6 + guest % 5} o'clock.",
    )
    return Question("What is the password?", documents, METHODS, NEW_TOKENS)


async def use_page(
    client: httpx.AsyncClient,
    page: Page,
    guest: int,
    expected: dict[str, str],
    until: float,
    totals: Totals,
) -> None:
    """Run the request of a client on the page until the test ends, with a new session after a few runs."""
    random_ = random.Random(guest)
    await asyncio.sleep(random_.uniform(0, min(ARRIVAL_S, (until - time.monotonic()) / 4)))
    while time.monotonic() < until:
        session = PageSession(client, page)
        try:
            async with session.heartbeat():
                await _timed(totals.page, session.open())
                for _ in range(RUNS_PER_SESSION):
                    await asyncio.sleep(random_.uniform(0, MAX_PAUSE_S))
                    if time.monotonic() >= until:
                        break
                    await _run(session, question_of(guest), expected, totals)
        except (LostError, httpx.HTTPError) as error:
            totals.errors[f"{type(error).__name__}: {error}"] += 1
        allowed = {str(number_of(guest)), *GUEST.findall(" ".join(expected.values()))}
        totals.foreign += not allowed.issuperset(GUEST.findall(" ".join(session.messages)))


async def call_api(
    client: httpx.AsyncClient, guest: int, expected: dict[str, str], until: float, totals: Totals
) -> None:
    """Send the request of a client to the public API until the test ends."""
    while time.monotonic() < until:
        try:
            answers = await compare(client, question_of(guest))
            totals.calls += 1
            totals.different += answers != expected
        except (LostError, httpx.HTTPError) as error:
            if QUEUE_FULL in str(error):
                totals.full += 1
            else:
                totals.errors[f"{type(error).__name__}: {error}"] += 1
        await asyncio.sleep(MAX_PAUSE_S)


async def _run(session: PageSession, request: Question, expected: dict[str, str], totals: Totals) -> None:
    updates = await session.run(request)
    totals.interval += updates.intervals
    if QUEUE_FULL in updates.status:
        totals.full += 1
    elif "Done:" in updates.status:
        totals.runs += 1
        totals.run.append(updates.times[-1])
        totals.different += updates.by_method != expected
    else:
        totals.errors[f"the run ended with: {updates.status}"] += 1
    await _timed(totals.event, session.count_tokens(request))


async def _timed(times: list[float], work: Coroutine[Any, Any, None]) -> None:
    began = time.monotonic()
    await work
    times.append(time.monotonic() - began)


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

        async def client_from(address: str) -> httpx.AsyncClient:
            # Connections expire here before the server closes them.
            limits = httpx.Limits(max_connections=None, keepalive_expiry=2)
            headers = {"X-Forwarded-For": address}
            client = httpx.AsyncClient(base_url=url, timeout=60, limits=limits, headers=headers)
            return await stack.enter_async_context(client)

        page = await Page.fetch(idle_client)
        expected = [await compare(idle_client, question_of(guest)) for guest in range(clients)]
        totals, attacks = Totals(), Counter[str]()
        memory, disk = list[float](), list[float]()
        until = time.monotonic() + seconds
        monitor = asyncio.create_task(_monitor(psutil.Process(pid), files, memory, disk))
        async with asyncio.TaskGroup() as tasks:
            for guest in range(clients):
                client = await client_from(f"198.51.100.{guest % 250 + 1}")
                tasks.create_task(
                    call_api(client, guest, expected[guest], until, totals)
                    if guest % CLIENTS_PER_SCRIPT == CLIENTS_PER_SCRIPT - 1
                    else use_page(client, page, guest, expected[guest], until, totals)
                )
            for number, attacker in enumerate(ATTACKERS if attackers else ()):
                client = await client_from(f"203.0.113.{number + 1}")
                tasks.create_task(attack(client, attacker, until, attacks))
        monitor.cancel()
    return Report(
        clients=clients,
        minutes=seconds / 60,
        load_average=os.getloadavg()[0],
        runs=totals.runs,
        calls=totals.calls,
        full=totals.full,
        errors=dict(totals.errors),
        foreign=totals.foreign,
        different=totals.different,
        run_median=_median(totals.run),
        interval_median=_median(totals.interval),
        interval_p95=_p95(totals.interval),
        interval_max=max(totals.interval, default=0.0),
        page_median=_median(totals.page),
        page_p95=_p95(totals.page),
        event_median=_median(totals.event),
        event_p95=_p95(totals.event),
        memory_after_one_minute=memory[min(60, len(memory) // 2)],
        memory_at_end=memory[-1],
        disk_max=max(disk),
        attacks=dict(attacks),
    )


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


def _median(times: Sequence[float]) -> float:
    return median(times) if times else 0.0


def _p95(times: Sequence[float]) -> float:
    return quantiles(times, n=20)[-1] if len(times) > 1 else _median(times)


def load(
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
            work: Coroutine[Any, Any, Report | BurstReport] = (
                measure_burst(app.url, app.log, burst, same, rounds)
                if burst
                else measure(
                    app.url, app.process.pid, visitors, 60 * minutes, files=folder, attackers=attackers
                )
            )
            report = asyncio.run(work)
            if "Traceback" in app.log.read_text():
                report.errors["a traceback in the log of the server"] = 1
    rows = [{"figure": name.replace("_", " "), "value": value} for name, value in asdict(report).items()]
    result = output.CommandResult(asdict(report), rows, report.faults, int(bool(report.faults)))
    output.print_result(result, as_json=as_json)


if __name__ == "__main__":
    typer.run(load)
