"""Computation of requests on the model, behind the queue, as events in the loop of the server."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from pine_engine.engine.engine import Engine
from pine_engine.engine.events import Event, RunFinished
from pine_engine.engine.generation import most_likely
from pine_engine.engine.run import prepare_run
from pine_engine.errors import Cancelled
from pine_engine.prompts.layout import TokenLayout
from pine_engine.scheduling.queue import Client, FairQueue
from pine_engine.scheduling.scheduler import run_shared
from pine_engine.scheduling.steps import Coroutine
from pine_engine.scheduling.worker import RunControl
from pine_engine.server.schema import ApiError

POLL_S = 0.1  # seconds between two checks whether the client of a queued request has disconnected
PING_S = 15.0  # seconds without an event after which the generator yields None


@dataclass(frozen=True)
class TokenChoice:
    """A generated token with its log-probability in nats, and the most likely tokens with theirs."""

    token_id: int
    logprob: float
    alternatives: tuple[tuple[int, float], ...]


@dataclass(eq=False)
class ServerJob:
    """One prompt, how to answer it, and the choices of tokens, if alternatives are requested."""

    layout: TokenLayout
    num_documents: int
    method: str
    max_new_tokens: int
    num_alternatives: int | None = None
    batch_size: int = 1  # of decoding; the step of a single row is faster, but cannot be shared with others
    choices: list[TokenChoice] = field(default_factory=list)

    def choose(self, logits: Tensor) -> tuple[int, float]:
        """Return the most likely token with its log-probability, and record the choice."""
        token, logprob = most_likely(logits)
        top = logits[0].float().log_softmax(-1).topk(self.num_alternatives or 0)
        alternatives = zip(top.indices.tolist(), top.values.tolist(), strict=True)
        self.choices.append(TokenChoice(token, logprob, tuple(alternatives)))
        return token, logprob

    def compute(self, engine: Engine, control: RunControl) -> Coroutine[RunFinished]:
        """Compute the answer as `Engine.run` does."""
        run = prepare_run(engine, self.layout, methods=self.method, max_new_tokens=self.max_new_tokens)
        answers = yield from run.prefill(control)
        if self.num_alternatives is not None:
            for answer in answers:
                answer.choose = self.choose
        yield from run.decode(answers, control, batch_size=self.batch_size)
        return RunFinished(run.result(answers))


JobEvent = ServerJob | Event | None
"""A job when it is tokenized, an event of its run, or None after some seconds without either."""


async def compute_events(
    engine: Engine,
    queue: FairQueue,
    prepare: Callable[[], ServerJob],
    client: Client,
    disconnect: Awaitable[None],
    max_seconds: float | None,
) -> AsyncGenerator[JobEvent, None]:
    """Yield the job of a request once it is tokenized, None every PING_S seconds, and the events of its run.

    `prepare` tokenizes the request in its place in the queue, where ready requests pass it. Closing the
    generator stops the model within one layer. Raises the errors of `prepare`, QueueFullError, Cancelled when
    `disconnect` has finished, and ApiError if the computation takes more than `max_seconds`.
    """
    loop = asyncio.get_running_loop()
    channel: asyncio.Queue[Any] = asyncio.Queue()

    def emit(item: JobEvent | Exception) -> None:
        with suppress(RuntimeError):  # the loop is closed when the server has ended
            loop.call_soon_threadsafe(channel.put_nowait, item)

    control = RunControl(emit)

    def work() -> None:
        try:
            is_ready = threading.Event()
            with queue.join(client, is_ready.is_set) as ticket:
                job = prepare()
                ticket.num_bytes = engine.run_bytes(job.layout, job.method, job.max_new_tokens)
                control.check()
                is_ready.set()
                emit(job)
                while ticket.wait(POLL_S):
                    control.check()
                control.check()
                timeout = threading.Timer(max_seconds or threading.TIMEOUT_MAX, control.cancelled.set)
                timeout.daemon = True
                timeout.start()
                try:
                    emit(run_shared(lambda _: job.compute(engine, control)))
                finally:
                    timeout.cancel()
        except Cancelled:
            message = f"the answer took more than {max_seconds} s; shorten documents or the answer"
            emit(ApiError(504, message, kind="server_error", code="timeout"))
        except Exception as error:  # raised again in the loop of the server
            emit(error)

    watcher = asyncio.ensure_future(disconnect)
    watcher.add_done_callback(lambda _: channel.put_nowait(Cancelled("the client has disconnected")))
    threading.Thread(target=work, daemon=True).start()
    try:
        while True:
            try:
                item = await asyncio.wait_for(channel.get(), PING_S)
            except TimeoutError:
                item = None
            if isinstance(item, Exception):
                raise item
            yield item
            if isinstance(item, RunFinished):
                return
    finally:
        watcher.cancel()
        control.cancelled.set()
        item = None  # see receive_from
