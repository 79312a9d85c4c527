"""Test one server under load: `make load`, or `python -m tools.load_test --visitors 50 --minutes 5`.

Each has documents of his own, asks over and over as the page does (every tenth by the public call), opens the
page anew now and then, and compares every answer with the one his question got when nobody else was there.
Among them are scripts that mean no good, unless `--no-attackers` is given. All come through a proxy, each
from an address of his own.
"""

import asyncio
import os
import random
import re
import tempfile
import time
from collections import Counter
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Annotated, Any

import httpx
import psutil
import typer

from pine_engine.cli import output
from pine_engine.cli.options import AsJson
from tests.support.serving import ServedApp, started_app
from tools.abusive_clients import ATTACKERS, attack
from tools.load_burst import BurstReport, Same, measure_burst
from tools.load_clients import LostError, Page, Question, Visitor, compare

METHODS = ("vanilla", "pine")
NEW_TOKENS = 8
SCRIPTS = 10
"""Every so-manieth visitor is a script."""

RUNS_A_PAGE = 3
"""After so many runs a visitor opens the page anew."""

PAUSE_S = 2.0
"""Longest pause between two runs of a visitor."""

ARRIVAL_S = 20.0
"""Within which the visitors come, or within a quarter of the time if that is less."""

HOST = "load.test"
"""A name that this machine does not have: the page is a public one."""

FULL = "The queue for the model is full"
WORDS = ("maple", "river", "copper", "violin", "candle", "harbor", "lemon", "saddle", "tunnel", "walnut")
OWNER = re.compile(r"guest number (\d{4})")

MOST_SILENT_S = 1.0
MOST_GROWTH_MB = 50.0
MAX_DISK_MB = 100.0


@dataclass
class Counted:
    """What all visitors saw. Times in seconds: silent is between two words on a run."""

    runs: int = 0
    calls: int = 0
    full: int = 0
    foreign: int = 0
    different: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    silent: list[float] = field(default_factory=list)
    page: list[float] = field(default_factory=list)
    event: list[float] = field(default_factory=list)
    run: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Report:
    """The figures. Times in seconds, memory in megabytes of the resident set, disk in megabytes.

    attacks: requests of scripts that mean no good, by what came of them.
    """

    visitors: int
    minutes: float
    load_average: float
    runs: int
    calls: int
    full: int
    errors: dict[str, int]
    foreign: int
    different: int
    run_median: float
    silent_median: float
    silent_p95: float
    silent_longest: float
    page_median: float
    page_p95: float
    event_median: float
    event_p95: float
    memory_after_a_minute: float
    memory_at_the_end: float
    disk_most: float
    attacks: dict[str, int]

    @property
    def faults(self) -> list[str]:
        """What breaks a promise, in words."""
        growth = self.memory_at_the_end - self.memory_after_a_minute
        return [
            sentence
            for broken, sentence in (
                (not self.runs, "no run was finished"),
                (self.errors, f"errors: {self.errors}"),
                (self.foreign, f"{self.foreign} visitors were shown something of others"),
                (self.different, f"{self.different} answers differ from those given alone"),
                (self.silent_median >= MOST_SILENT_S, f"median of silence: {self.silent_median:.2f} s"),
                (growth >= MOST_GROWTH_MB, f"memory grew by {growth:.0f} MB"),
                (self.disk_most >= MAX_DISK_MB, f"visitors' files took {self.disk_most:.0f} MB"),
            )
            if broken
        ]


def number_of(guest: int) -> int:
    """What he is called: of four digits, so that no part of a number is another one while it is written."""
    return 1000 + guest


def question_of(guest: int) -> Question:
    """What a visitor asks. No two have the same documents."""
    number, word = number_of(guest), WORDS[guest % len(WORDS)]
    documents = (
        f"The password of guest number {number} is {word}.",
        "The house was painted blue last summer.",
        f"Breakfast for guest number {number} is served at {6 + guest % 5} o'clock.",
    )
    return Question("What is the password?", documents, METHODS, NEW_TOKENS)


async def visit(
    client: httpx.AsyncClient,
    page: Page,
    guest: int,
    expected: dict[str, str],
    until: float,
    counted: Counted,
) -> None:
    """A visitor who comes again and again until the time is over."""
    random_ = random.Random(guest)
    await asyncio.sleep(random_.uniform(0, min(ARRIVAL_S, (until - time.monotonic()) / 4)))
    while time.monotonic() < until:
        visitor = Visitor(client, page)
        try:
            async with visitor.here():
                await _timed(counted.page, visitor.open())
                for _ in range(RUNS_A_PAGE):
                    await asyncio.sleep(random_.uniform(0, PAUSE_S))
                    if time.monotonic() >= until:
                        break
                    await _ask(visitor, question_of(guest), expected, counted)
        except (LostError, httpx.HTTPError) as error:
            counted.errors[f"{type(error).__name__}: {error}"] += 1
        numbers = {int(number) for text in visitor.seen for number in OWNER.findall(text)}
        own = {
            number_of(guest),
            *(int(number) for text in expected.values() for number in OWNER.findall(text)),
        }
        counted.foreign += bool(numbers - own)


async def call(
    client: httpx.AsyncClient, guest: int, expected: dict[str, str], until: float, counted: Counted
) -> None:
    """A script that calls again and again until the time is over."""
    while time.monotonic() < until:
        try:
            answers = await compare(client, question_of(guest))
            counted.calls += 1
            counted.different += answers != expected
        except (LostError, httpx.HTTPError) as error:
            if FULL in str(error):
                counted.full += 1
            else:
                counted.errors[f"{type(error).__name__}: {error}"] += 1
        await asyncio.sleep(PAUSE_S)


async def _ask(visitor: Visitor, asked: Question, expected: dict[str, str], counted: Counted) -> None:
    heard = await visitor.run(asked)
    counted.silent += heard.waits
    if FULL in heard.status:
        counted.full += 1
    elif "Done:" in heard.status:
        counted.runs += 1
        counted.run.append(heard.at[-1])
        counted.different += heard.by_method != expected
    else:
        counted.errors[f"the run ended with: {heard.status}"] += 1
    await _timed(counted.event, visitor.type(asked))


async def _timed(times: list[float], work: Any) -> None:
    began = time.monotonic()
    await work
    times.append(time.monotonic() - began)


async def measure(
    url: str, pid: int, visitors: int, seconds: float, *, files: Path, attackers: bool = False
) -> Report:
    """The load, and before it every visitor's question alone.

    files: where the page keeps those of visitors. attackers: whether there are scripts that mean no good.
    """
    async with AsyncExitStack() as open_, httpx.AsyncClient(base_url=url, timeout=60) as client:

        async def come(address: str) -> httpx.AsyncClient:
            limits = httpx.Limits(max_connections=None, keepalive_expiry=2)  # before the server ends them
            headers = {"X-Forwarded-For": address}
            client = httpx.AsyncClient(base_url=url, timeout=60, limits=limits, headers=headers)
            return await open_.enter_async_context(client)

        page = Page.of((await client.get("/config")).json())
        expected = [await compare(client, question_of(guest)) for guest in range(visitors)]
        counted, attacks = Counted(), Counter[str]()
        memory: list[float] = []
        disk: list[float] = []
        process, began = psutil.Process(pid), time.monotonic()
        until = began + seconds
        watch = asyncio.create_task(_watch(process, files, memory, disk))
        async with asyncio.TaskGroup() as there:
            for guest in range(visitors):
                own = await come(f"198.51.100.{guest % 250 + 1}")
                there.create_task(
                    call(own, guest, expected[guest], until, counted)
                    if guest % SCRIPTS == SCRIPTS - 1
                    else visit(own, page, guest, expected[guest], until, counted)
                )
            for number, attacker in enumerate(ATTACKERS if attackers else ()):
                own = await come(f"203.0.113.{number + 1}")
                there.create_task(attack(own, attacker, lambda: time.monotonic() > until, attacks))
        watch.cancel()
    return Report(
        visitors=visitors,
        minutes=seconds / 60,
        load_average=os.getloadavg()[0],
        runs=counted.runs,
        calls=counted.calls,
        full=counted.full,
        errors=dict(counted.errors),
        foreign=counted.foreign,
        different=counted.different,
        run_median=_median(counted.run),
        silent_median=_median(counted.silent),
        silent_p95=_p95(counted.silent),
        silent_longest=max(counted.silent, default=0.0),
        page_median=_median(counted.page),
        page_p95=_p95(counted.page),
        event_median=_median(counted.event),
        event_p95=_p95(counted.event),
        memory_after_a_minute=memory[min(60, len(memory) // 2)],
        memory_at_the_end=memory[-1],
        disk_most=max(disk),
        attacks=dict(attacks),
    )


async def _watch(process: psutil.Process, files: Path, memory: list[float], disk: list[float]) -> None:
    """Writes down every second what the process, and those that it has started, take."""
    while True:
        memory.append(process.memory_info().rss / 1e6)
        disk.append(sum(_size(file) for file in files.rglob("*")) / 1e6)
        await asyncio.sleep(1)


def _size(file: Path) -> int:
    with suppress(OSError):  # it has gone meanwhile
        return file.stat().st_size
    return 0


def _median(times: Sequence[float]) -> float:
    return median(times) if times else 0.0


def _p95(times: Sequence[float]) -> float:
    return quantiles(times, n=20)[-1] if len(times) > 1 else _median(times)


@contextmanager
def public_app(folder: Path) -> Iterator[ServedApp]:
    """Serves the app as to the public, behind a proxy; its log and visitors' files lie in the folder."""
    environment = {"PINE_ALLOWED_HOSTS": f"127.0.0.1,{HOST}", "GRADIO_TEMP_DIR": str(folder / "files")}
    with started_app(folder / "app.log", environment=environment) as app:
        yield app


def load(
    visitors: Annotated[int, typer.Option(help="Visitors at once.", min=1)] = 50,
    minutes: Annotated[float, typer.Option(help="How long they come.", min=0.05)] = 5.0,
    attackers: Annotated[bool, typer.Option(help="Scripts that mean no good among them.")] = True,
    burst: Annotated[int, typer.Option(help="Visitors who press a button at once, instead.", min=0)] = 0,
    same: Annotated[Same, typer.Option(help="What these have in common.")] = "example",
    rounds: Annotated[int, typer.Option(help="Bursts, each after a run alone.", min=1)] = 3,
    as_json: AsJson = False,
) -> None:
    """Let many visitors at once use the page of this machine, and count what goes wrong."""
    with tempfile.TemporaryDirectory() as folder, public_app(Path(folder)) as app:
        work: Coroutine[Any, Any, Report | BurstReport] = (
            measure_burst(app.url, app.log, burst, same, rounds)
            if burst
            else measure(
                app.url, app.process.pid, visitors, 60 * minutes, files=Path(folder), attackers=attackers
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
