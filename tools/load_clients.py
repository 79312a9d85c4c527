"""A visitor without a browser: gets the page, presses its buttons and reads its stream of answers."""

import json
import re
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from html import unescape
from typing import Any, Self

import httpx
from gradio_client.utils import apply_diff

from viz.page.form.documents import entries_from, entries_json

PATIENCE_S = 300.0
"""After which an answer is taken for lost."""

ANSWER = re.compile(r'data-method="(\w+)".*?class="pine-answer-text"[^>]*>(.*?)</', re.DOTALL)


class LostError(Exception):
    """An answer that never came, or one that says that the server failed."""


@dataclass(frozen=True)
class Question:
    """What a visitor asks, about documents of his own."""

    question: str
    documents: tuple[str, ...]
    methods: tuple[str, ...]
    tokens: int


@dataclass
class Heard:
    """What a run told last, and when it told something, in seconds from the press of the button."""

    status: str = ""
    answers: str = ""
    at: list[float] = field(default_factory=list)

    @property
    def waits(self) -> Iterator[float]:
        """Seconds without a word, from the press on."""
        return (later - before for before, later in zip([0.0, *self.at], self.at, strict=False))

    @property
    def by_method(self) -> dict[str, str]:
        """The answers on the cards."""
        return {method: unescape(text).strip() for method, text in ANSWER.findall(self.answers)}


@dataclass(frozen=True)
class Page:
    """The page as the server describes it."""

    components: dict[int, dict[str, Any]]
    events: list[dict[str, Any]]

    @classmethod
    def of(cls, config: dict[str, Any]) -> Self:
        """From what /config answers."""
        return cls({one["id"]: one["props"] for one in config["components"]}, config["dependencies"])

    def pressed(self, elem_id: str) -> dict[str, Any]:
        """The event of a click on a button."""
        (event,) = (
            event
            for event in self.events
            for target, kind in event["targets"]
            if kind == "click" and self.components[target].get("elem_id") == elem_id
        )
        return event

    def counting(self) -> dict[str, Any]:
        """The event that counts tokens whenever something is typed."""
        return next(
            event
            for event in self.events
            if any(self.components[one].get("elem_id") == "total" for one in event["outputs"])
        )

    def loaded(self) -> list[dict[str, Any]]:
        """The events of the page being opened."""
        return [event for event in self.events if any(kind == "load" for _, kind in event["targets"])]

    def after(self, event: dict[str, Any]) -> list[dict[str, Any]]:
        """The events that follow one."""
        return [one for one in self.events if one["trigger_after"] == event["id"]]

    def values(self, event: dict[str, Any]) -> list[Any]:
        """The inputs of an event as they are when the page is opened; None for what the server keeps."""
        return [self.components[one].get("value") for one in event["inputs"]]

    def form(self, event: dict[str, Any], asked: Question) -> list[Any]:
        """The inputs of Run, filled in; they are in the order of viz.page.form.form.read_form."""
        filled: dict[str, Any] = {
            "question": asked.question,
            "instruction": "",
            "methods": list(asked.methods),
            "length": asked.tokens,
            "documents": entries_json(entries_from([("", text) for text in asked.documents])),
        }
        return self.example(event, filled)

    def example(self, event: dict[str, Any], changed: Mapping[str, Any]) -> list[Any]:
        """Return the inputs of an event for the first example, with other values of some widgets."""
        names = [str(self.components[one].get("elem_id")) for one in event["inputs"]]
        return [changed.get(name, value) for name, value in zip(names, self.values(event), strict=True)]


class Visitor:
    """One open page. Everything he is sent is in `seen`."""

    def __init__(self, client: httpx.AsyncClient, page: Page) -> None:
        self._client, self._page = client, page
        self._session = secrets.token_hex(6)
        self.seen: list[str] = []
        self.html: dict[str, str] = {}  # of the widgets that a job updates

    async def open(self) -> None:
        """Does what a browser does first."""
        (await self._client.get("/")).raise_for_status()
        for event in self._page.loaded():
            await self.send(event)

    async def send(self, event: dict[str, Any], values: Sequence[Any] | None = None) -> None:
        """An event, until it is answered."""
        if not event["backend_fn"]:
            return
        if event["queue"]:
            async for message in self._queued(event, self._page.values(event) if values is None else values):
                self.seen.append(json.dumps(message))
            return
        answer = await self._client.post("/gradio_api/run/predict", json=self._body(event, values))
        if answer.status_code != httpx.codes.OK:
            raise LostError(
                f"event {event['api_name'] or event['id']}: {answer.status_code} {answer.text[:200]}"
            )
        self.seen.append(answer.text)

    async def type(self, asked: Question) -> None:
        """Types the question."""
        event = self._page.counting()
        await self.send(event, self._page.form(event, asked))

    async def run(self, asked: Question) -> Heard:
        """Presses Run, listens to the end, and draws what follows."""
        event, heard = self._page.pressed("run"), Heard()
        began = time.monotonic()
        async for heard.status, heard.answers in self.shown("run", asked):
            heard.at.append(time.monotonic() - began)
        for follower in self._page.after(event):
            await self.send(follower)
        return heard

    async def shown(self, button: str, asked: Question) -> AsyncGenerator[tuple[str, str], None]:
        """Presses a button that starts a job; at every word the sentence below it, and the answers.

        Closing it closes the stream of answers, as leaving the page does.
        """
        async with aclosing(self.press(button, self._page.form(self._page.pressed(button), asked))) as shown:
            async for words in shown:
                yield words

    async def press(self, button: str, values: Sequence[Any]) -> AsyncGenerator[tuple[str, str], None]:
        """Start a job with these inputs, and yield as `shown` does."""
        event = self._page.pressed(button)
        outputs = [self._page.components[one].get("elem_id") for one in event["outputs"]]
        shown: list[Any] = []
        status = answers = ""
        async with aclosing(self._queued(event, values)) as messages:
            async for message in messages:
                data = message.get("output", {}).get("data")
                if message["msg"] == "process_generating" and data:
                    shown = [apply_diff(*pair) for pair in zip(shown, data, strict=True)] if shown else data
                    html = {name: _html(value) for name, value in zip(outputs, shown, strict=True)}
                    self.html |= {str(name): value for name, value in html.items() if value}
                    status = _html(shown[0]) or status  # the sentence comes first, see bind_job
                    answers = html["answers"] or answers
                    self.seen += [status, answers]
                yield status, answers

    async def _queued(
        self, event: dict[str, Any], values: Sequence[Any]
    ) -> AsyncGenerator[dict[str, Any], None]:
        joined = await self._client.post("/gradio_api/queue/join", json=self._body(event, values))
        if joined.status_code != httpx.codes.OK:
            raise LostError(f"Run was refused: {joined.status_code} {joined.text[:200]}")
        address = f"/gradio_api/queue/data?session_hash={self._session}"
        async with self._client.stream("GET", address, timeout=PATIENCE_S) as stream:
            async for line in stream.aiter_lines():
                message = json.loads(line.removeprefix("data: ")) if line else {}
                if message.get("msg") == "close_stream":
                    return
                if message.get("event_id") != joined.json()["event_id"]:
                    continue
                if not message.get("success", True):
                    raise LostError(f"Run failed: {message.get('output')}")
                yield message
        raise LostError("the stream of answers ended without the answer")

    def _body(self, event: dict[str, Any], values: Sequence[Any] | None) -> dict[str, Any]:
        data = self._page.values(event) if values is None else values
        return {"data": data, "fn_index": event["id"], "session_hash": self._session}

    @asynccontextmanager
    async def here(self) -> AsyncIterator[Self]:
        """Keeps the line open that tells the server that he is there."""
        async with self._client.stream("GET", f"/gradio_api/heartbeat/{self._session}"):
            yield self


async def compare(client: httpx.AsyncClient, asked: Question) -> dict[str, str]:
    """Text by method, by the public call."""
    data = [asked.question, list(asked.documents), list(asked.methods), asked.tokens, "", []]
    joined = await client.post("/gradio_api/call/compare", json={"data": data})
    event = joined.json()["event_id"]
    kind = ""
    async with client.stream("GET", f"/gradio_api/call/compare/{event}", timeout=PATIENCE_S) as stream:
        async for line in stream.aiter_lines():
            name, _, text = line.partition(": ")
            if name == "event":
                kind = text
            elif name == "data" and kind == "error":
                raise LostError(f"/compare failed: {text[:200]}")
            elif name == "data" and kind == "complete":
                return {one["method"]: one["text"].strip() for one in json.loads(text)[0]["results"]}
    raise LostError("the stream of answers ended without the answer")


def _html(value: Any) -> str:
    """New HTML of a widget, "" if it is not changed."""
    if isinstance(value, dict):
        value = value.get("value")
    return value if isinstance(value, str) else ""
