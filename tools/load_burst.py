"""Many clients that start a run at the same moment: time of the last answer relative to a single run."""

import asyncio
import json
import os
import time
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal

import httpx

from tools.load_clients import ANSWER, LostError, Page, PageSession

Same = Literal["example", "shuffle", "none"]
"""Requests of the clients: the first example, its shuffle test, or its documents and different questions."""


@dataclass(frozen=True)
class BurstReport:
    """Times of all rounds in seconds, from the start of the run to its end, with their median ratio.

    Attributes:
        alone: Time of a run on the idle server.
        last: Time of the last of the concurrent runs.
        computed: Concurrent runs that the server computed; the other ones followed them.
        different: Answers that differ from those of the idle server.
    """

    clients: int
    same: str
    load_average: float
    alone: list[float]
    last: list[float]
    ratio: float
    computed: list[int]
    different: int
    errors: dict[str, int]

    @property
    def faults(self) -> list[str]:
        """Return the failed checks, in words."""
        faults = [f"{self.different} answers differ from those of the idle server"] if self.different else []
        return faults + [f"errors: {self.errors}"] * bool(self.errors)


async def measure_burst(url: str, log: Path, clients: int, same: Same, rounds: int) -> BurstReport:
    """Measure concurrent runs, each round after a run on the idle server.

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
            headers = {"X-Forwarded-For": f"198.51.100.{number % 250 + 1}"}
            client = httpx.AsyncClient(base_url=url, timeout=60, headers=headers)
            session = PageSession(await stack.enter_async_context(client), page)
            await stack.enter_async_context(session.heartbeat())
            await session.open()
            sessions.append(session)
        await _run(sessions[0], page, "example", 0)  # loads the model
        others = range(1, clients) if same == "none" else ()
        results = [(await _run(sessions[0], page, same, number))[1] for number in others]
        different = 0
        for _ in range(rounds):
            seconds, result = await _run(sessions[0], page, same, 0)
            alone.append(seconds)
            expected = [result, *results]
            log_size = len(log.read_text())
            runs = [_run(session, page, same, number) for number, session in enumerate(sessions)]
            outcomes = await asyncio.gather(*runs, return_exceptions=True)
            for number, result in enumerate(outcomes):
                if isinstance(result, BaseException):
                    errors[f"{type(result).__name__}: {result}"] += 1
                else:
                    different += result[1] != expected[number % len(expected)]
            last.append(max((one[0] for one in outcomes if not isinstance(one, BaseException)), default=0.0))
            lines = log.read_text()[log_size:].splitlines()
            computed.append(sum(not json.loads(one).get("shared") for one in lines if one.startswith("{")))
    return BurstReport(
        clients=clients,
        same=same,
        load_average=os.getloadavg()[0],
        alone=alone,
        last=last,
        ratio=median(one / other for one, other in zip(last, alone, strict=True)),
        computed=computed,
        different=different,
        errors=dict(errors),
    )


async def _run(session: PageSession, page: Page, same: Same, number: int) -> tuple[float, Any]:
    """Return the time of one run and its results, as the page shows them."""
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
