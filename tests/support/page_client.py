"""Client of the page without a browser: opens the page, sends its events and reads the stream of updates."""

import json
import re
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from html import unescape
from itertools import pairwise
from typing import Any, Self

import httpx
from gradio_client.utils import apply_diff

from viz.page.form.documents import entries_from, entries_json

TIMEOUT_S = 300.0
"""Timeout of a stream without messages, in seconds."""

WAITING = re.compile(r"(<[^>]*>)*(Starting|Queued|$)")
"""Status line before the start of a run."""

ANSWER = re.compile(r'data-method="(\w+)".*?class="pine-answer-text"[^>]*>(.*?)</', re.DOTALL)


class LostError(Exception):
    """Missing answer, or error of the server."""


@dataclass(frozen=True)
class Question:
    """Question about documents, with the methods and the maximum number of tokens of an answer."""

    question: str
    documents: tuple[str, ...]
    methods: tuple[str, ...]
    tokens: int


WORDS = ("maple", "river", "copper", "violin", "candle", "harbor", "lemon", "saddle", "tunnel", "walnut")


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
    return Question("What is the password?", documents, ("vanilla", "pine"), 8)


@dataclass
class RunUpdates:
    """Last status and answers of a run, and the times of its updates in seconds since the click."""

    status: str = ""
    answers: str = ""
    times: list[float] = field(default_factory=list)
    num_waiting: int = 0  # updates before the start of the run

    @property
    def intervals(self) -> Iterator[float]:
        """Return the seconds between two updates of the active run."""
        return (later - before for before, later in pairwise(self.times[self.num_waiting :]))

    @property
    def by_method(self) -> dict[str, str]:
        """Return the answers on the cards by method."""
        return {method: unescape(text).strip() for method, text in ANSWER.findall(self.answers)}


@dataclass(frozen=True)
class Page:
    """Configuration of the page: properties of the components by id, and events."""

    components: dict[int, dict[str, Any]]
    events: list[dict[str, Any]]

    @classmethod
    async def fetch(cls, client: httpx.AsyncClient) -> Self:
        """Return the page that the server describes at /config."""
        config = (await client.get("/config")).json()
        return cls({one["id"]: one["props"] for one in config["components"]}, config["dependencies"])

    def event(self, api_name: str) -> dict[str, Any]:
        """Return the event with this API name."""
        return next(event for event in self.events if event["api_name"] == api_name)

    def click_event(self, elem_id: str) -> dict[str, Any]:
        """Return the event of a click on a button, without a second one that stops another job."""
        found = (
            event
            for event in self.events
            for target, kind in event["targets"]
            if kind == "click" and self.components[target].get("elem_id") == elem_id
        )
        return max(found, key=lambda event: len(event["inputs"]))

    def token_count_event(self) -> dict[str, Any]:
        """Return the event that counts tokens after each input."""
        return next(
            event
            for event in self.events
            if any(self.components[one].get("elem_id") == "total" for one in event["outputs"])
        )

    def load_events(self) -> list[dict[str, Any]]:
        """Return the events that a browser sends when it opens the page."""
        return [event for event in self.events if any(kind == "load" for _, kind in event["targets"])]

    def events_after(self, event: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the events that follow one."""
        return [one for one in self.events if one["trigger_after"] == event["id"]]

    def values(self, event: dict[str, Any], **changes: Any) -> list[Any]:
        """Return the inputs of an event on the new page, None for server state; changes: by element id."""
        inputs = (self.components[one] for one in event["inputs"])
        return [changes.get(str(one.get("elem_id")), one.get("value")) for one in inputs]

    def form(self, event: dict[str, Any], request: Question) -> list[Any]:
        """Return the inputs of an event of the form with this request."""
        return self.values(
            event,
            question=request.question,
            instruction="",
            methods=list(request.methods),
            length=request.tokens,
            documents=entries_json(entries_from([("", text) for text in request.documents])),
        )


class PageSession:
    """Open page with a session of its own.

    Attributes:
        messages: All texts that the server has sent.
        html: Contents of the widgets that a job updates, by element id.
    """

    def __init__(self, client: httpx.AsyncClient, page: Page) -> None:
        self._client, self._page = client, page
        self._session_hash = secrets.token_hex(6)
        self.messages: list[str] = []
        self.html: dict[str, str] = {}

    async def open(self) -> None:
        """Send the requests of a browser that opens the page."""
        (await self._client.get("/")).raise_for_status()
        for event in self._page.load_events():
            await self.send(event)

    async def send(self, event: dict[str, Any], values: Sequence[Any] | None = None) -> None:
        """Send an event and wait for its answer; values: those of the new page if None."""
        if not event["backend_fn"]:
            return
        if event["queue"]:
            async for message in self._queued(event, values):
                self.messages.append(json.dumps(message))
            return
        answer = await self._client.post("/gradio_api/run/predict", json=self._body(event, values))
        if answer.status_code != httpx.codes.OK:
            name = event["api_name"] or event["id"]
            raise LostError(f"event {name}: {answer.status_code} {answer.text[:200]}")
        self.messages.append(answer.text)

    async def count_tokens(self, request: Question) -> None:
        """Send the event of a typed request."""
        event = self._page.token_count_event()
        await self.send(event, self._page.form(event, request))

    async def run(self, request: Question) -> RunUpdates:
        """Click Run, read all updates, and send the events that follow."""
        updates, began = RunUpdates(), time.monotonic()
        async for updates.status, updates.answers in self.submit("run", request):
            updates.times.append(time.monotonic() - began)
            updates.num_waiting += bool(WAITING.match(updates.status))
        for follower in self._page.events_after(self._page.click_event("run")):
            await self.send(follower, self._page.form(follower, request))
        return updates

    def submit(self, button: str, request: Question) -> AsyncGenerator[tuple[str, str], None]:
        """Start a job with a request, and yield as `start` does."""
        return self.start(button, self._page.form(self._page.click_event(button), request))

    async def start(self, button: str, values: Sequence[Any]) -> AsyncGenerator[tuple[str, str], None]:
        """Click a button that starts a job. Yield the status line and the answers after each message.

        Closing the generator closes the stream of updates, as leaving the page does.
        """
        event = self._page.click_event(button)
        outputs = [self._page.components[one].get("elem_id") for one in event["outputs"]]
        current: list[Any] = []
        status = answers = ""
        async with aclosing(self._queued(event, values)) as messages:
            async for message in messages:
                data = message.get("output", {}).get("data")
                if message["msg"] == "process_generating" and data:
                    pairs = zip(current, data, strict=True)
                    current = [apply_diff(*pair) for pair in pairs] if current else data
                    html = {name: _html(value) for name, value in zip(outputs, current, strict=True)}
                    self.html |= {str(name): value for name, value in html.items() if value}
                    status = _html(current[0]) or status  # the status line is the first output, see bind_job
                    answers = html["answers"] or answers
                    self.messages += [status, answers]
                yield status, answers

    async def _queued(
        self, event: dict[str, Any], values: Sequence[Any] | None
    ) -> AsyncGenerator[dict[str, Any], None]:
        joined = await self._client.post("/gradio_api/queue/join", json=self._body(event, values))
        if joined.status_code != httpx.codes.OK:
            raise LostError(f"the queue rejected the event: {joined.status_code} {joined.text[:200]}")
        address = f"/gradio_api/queue/data?session_hash={self._session_hash}"
        async with self._client.stream("GET", address, timeout=TIMEOUT_S) as stream:
            async for line in stream.aiter_lines():
                message = json.loads(line.removeprefix("data: ")) if line else {}
                if message.get("msg") == "close_stream":
                    return
                if message.get("event_id") != joined.json()["event_id"]:
                    continue
                if not message.get("success", True):
                    raise LostError(f"the event failed: {message.get('output')}")
                yield message
        raise LostError("the stream ended without an answer")

    def _body(self, event: dict[str, Any], values: Sequence[Any] | None) -> dict[str, Any]:
        data = self._page.values(event) if values is None else values
        return {"data": data, "fn_index": event["id"], "session_hash": self._session_hash}

    @asynccontextmanager
    async def heartbeat(self) -> AsyncIterator[None]:
        """Keep the stream open that reports the page as open to the server."""
        async with self._client.stream("GET", f"/gradio_api/heartbeat/{self._session_hash}"):
            yield


async def compare(client: httpx.AsyncClient, request: Question) -> dict[str, str]:
    """Return the answers of the public endpoint /compare by method."""
    data = [request.question, list(request.documents), list(request.methods), request.tokens, "", [], {}]
    joined = await client.post("/gradio_api/call/compare", json={"data": data})
    event = joined.json()["event_id"]
    kind = ""
    async with client.stream("GET", f"/gradio_api/call/compare/{event}", timeout=TIMEOUT_S) as stream:
        async for line in stream.aiter_lines():
            name, _, text = line.partition(": ")
            if name == "event":
                kind = text
            elif name == "data" and kind == "error":
                raise LostError(f"/compare failed: {text[:200]}")
            elif name == "data" and kind == "complete":
                return {one["method"]: one["text"].strip() for one in json.loads(text)[0]["results"]}
    raise LostError("the stream ended without an answer")


def _html(value: Any) -> str:
    """Return the new HTML of a widget, "" if it has not changed."""
    if isinstance(value, dict):
        value = value.get("value")
    return value if isinstance(value, str) else ""
