"""Concurrent requests to a server: their outcomes, and the failures that end all of them."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from pine_engine.endpoint.failures import RefusalError
from pine_engine.endpoint.replies import Reply
from pine_engine.errors import EndpointError

if TYPE_CHECKING:
    import openai

POLL_S = 0.1  # seconds between two checks whether the run was stopped
CLOSING_S = 0.5  # maximum seconds to cancel requests, and to close connections
MAX_REFUSED = 5
"""Refusals without an answer between them, after which a harmless prompt shows if all are refused."""

Outcome = Reply | RefusalError
Request = TypeVar("Request")


class Sending(Generic[Request]):
    """Requests of one client in an event loop of this thread, which the exit of the context cancels.

    Args:
        model_ref: Name of the server in messages.
        client: Client of the server.
        answer: Returns the outcome of a request. Raises EndpointError for a failure of all.
        probe: Sends a harmless prompt in the form of a request; returns its refusal, None for an answer.
            Raises EndpointError for a failure of all.
        check: Called several times per second; an exception stops the requests.
    """

    def __init__(
        self,
        model_ref: str,
        client: "openai.AsyncOpenAI",
        answer: "Callable[[openai.AsyncOpenAI, Request], Coroutine[Any, Any, Outcome]]",
        probe: "Callable[[openai.AsyncOpenAI, Request], Coroutine[Any, Any, RefusalError | None]]",
        check: Callable[[], None],
    ) -> None:
        self._model_ref, self._client = model_ref, client
        self._answer, self._probe, self._check = answer, probe, check
        self._active: dict[asyncio.Task[Outcome], tuple[Request, float]] = {}
        self._refused: list[tuple[Request, Outcome]] = []  # since the last answer, also of a probe
        self._num_refused = 0  # since the last answer to a request
        self._next_probe = MAX_REFUSED
        self._answered = -1.0  # time of the last answer
        self._failure: EndpointError | None = None

    def __enter__(self) -> Self:
        # No asyncio.Runner: its exit waits for the threads that resolve names, which cannot be cancelled.
        self._loop = asyncio.new_event_loop()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._loop.run_until_complete(self._close())
        finally:
            self._loop.close()

    async def _close(self) -> None:
        if tasks := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in tasks:
                task.cancel()
            done, _ = await asyncio.wait(tasks, timeout=CLOSING_S)
            for task in done:
                if not task.cancelled():
                    task.exception()  # retrieved, so that asyncio does not log it
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSING_S):
                await self._client.close()
                await self._loop.shutdown_asyncgens()

    def outcomes(
        self, requests: Iterable[Request], max_concurrency: int
    ) -> Iterator[tuple[Request, Outcome]]:
        """Yield each request with its outcome.

        Raises EndpointError for a failure of all requests, behind the answers to the active ones.
        """
        remaining = iter(requests)
        while True:
            num_free = 0 if self._failure else max_concurrency - len(self._active)
            for request in islice(remaining, num_free):
                task = self._loop.create_task(self._answer(self._client, request))
                self._active[task] = request, time.monotonic()
            if not self._active:
                break
            for task in self._wait(self._active):
                request, began = self._active.pop(task)
                if isinstance(failure := task.exception(), EndpointError):
                    self._failure = self._failure or failure
                else:
                    yield from self._take(request, task.result(), began)
        if self._refused and self._answered < 0:
            self._ask()
        if self._failure:
            raise self._failure
        yield from self._refused

    def _take(self, request: Request, outcome: Outcome, began: float) -> Iterator[tuple[Request, Outcome]]:
        """Yield answers, and the refusals that belong to their requests because others have answers."""
        if isinstance(outcome, RefusalError):
            if outcome.is_timeout and self._answered < began:
                failure = EndpointError(f"{self._model_ref}: {outcome}", field="endpoint")
                self._failure = self._failure or failure
                return
            self._refused.append((request, outcome))
            self._num_refused += 1
            if self._num_refused < self._next_probe:
                return
            self._next_probe *= 2
            self._ask()
            if self._failure:
                return
            yield from self._refused
        else:
            self._answered, self._num_refused, self._next_probe = time.monotonic(), 0, MAX_REFUSED
            yield from self._refused
            yield request, outcome
        self._refused.clear()

    def _ask(self) -> None:
        """Send a harmless prompt, whose refusal is a failure of all requests."""
        if self._failure:
            return
        request, _ = self._refused[-1]
        task = self._loop.create_task(self._probe(self._client, request))
        while not self._wait([task]):
            pass
        failure = task.exception()
        if isinstance(failure, EndpointError):
            self._failure = failure
        elif refusal := task.result():
            self._failure = refusal.of_all(self._model_ref)
        else:
            self._answered = time.monotonic()

    def _wait(self, tasks: "Iterable[asyncio.Task[Any]]") -> "set[asyncio.Task[Any]]":
        """Return the tasks that end within POLL_S."""
        self._check()
        waiting = asyncio.wait(tasks, timeout=POLL_S, return_when=asyncio.FIRST_COMPLETED)
        done, _ = self._loop.run_until_complete(waiting)
        return done
