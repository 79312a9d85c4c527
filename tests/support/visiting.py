"""Clients of a served page."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from tests.support.page_client import Page, Question, compare, question_of
from tests.support.serving import ServedApp

LONG = Question(
    "What is the password?",
    tuple(f"{'The lighthouse keeper wrote a letter about the storm. ' * 12}Number {n}." for n in range(3)),
    ("vanilla", "pine"),
    256,
)


@asynccontextmanager
async def visiting(app: ServedApp, address: str = "") -> AsyncIterator[tuple[httpx.AsyncClient, Page]]:
    """Yield a client and the page that it gets.

    address: of the client, behind a proxy; this machine if empty.
    """
    headers = {"X-Forwarded-For": address} if address else {}
    async with httpx.AsyncClient(base_url=app.url, timeout=60, headers=headers) as client:
        yield client, await Page.fetch(client)


async def ask(app: ServedApp) -> dict[str, str]:
    """Return the answers of a short API call by method."""
    async with visiting(app) as (client, _):
        return await compare(client, question_of(1))
