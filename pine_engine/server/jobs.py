"""Tokens of requests, and their computation behind the queue, as events in the loop of the server."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import Tensor

from pine_engine.engine.engine import Engine
from pine_engine.engine.events import Event, RunFinished
from pine_engine.engine.generation import most_likely
from pine_engine.engine.run import prepare_run
from pine_engine.errors import Cancelled, InputError
from pine_engine.prompts.layout import TokenLayout
from pine_engine.prompts.marked import chat_prompt, tokenize_marked
from pine_engine.prompts.messages import read_chat
from pine_engine.prompts.prompt import Piece, Prompt
from pine_engine.prompts.tasks import TASKS, USUAL_TASK
from pine_engine.rows.documents import Document
from pine_engine.scheduling.job import Job, PreparedJob
from pine_engine.scheduling.run_state import RunState
from pine_engine.scheduling.runs import Caller, Runs
from pine_engine.scheduling.scheduler import Coroutine, stream_shared
from pine_engine.scheduling.turns import Client
from pine_engine.scheduling.work import Work
from pine_engine.scheduling.worker import RunControl, raise_if_cancelled
from pine_engine.server.schema import ApiError, CompletionBody, MessagesBody

MAX_CHARACTERS_PER_TOKEN = 30  # of a prompt; even code with deep indents has fewer

HOW_TO_GIVE_DOCUMENTS = (
    'give "documents": ["...", {"title": "...", "text": "..."}], or mark each in the text as '
    "<document>...</document>"
)


def check_characters(engine: Engine, body: MessagesBody | CompletionBody) -> None:
    """Raise ApiError for a prompt that is too long for the model, without tokenizing it."""
    texts = [text for document in body.documents for text in (document.title, document.text)]
    if isinstance(body, MessagesBody):
        texts += [body.instruction, str(body.chat_template_kwargs)]
        texts += [message.content for message in body.messages]
    else:
        texts.append(body.prompt)
    count, most = sum(map(len, texts)), MAX_CHARACTERS_PER_TOKEN * engine.max_context_length
    if count > most:
        message = f"prompt is too long: got {count:,} characters, expected up to {most:,}; shorten the prompt"
        raise ApiError(400, message, code="context_length_exceeded", field=body.prompt_field)


def tokenize_body(engine: Engine, body: MessagesBody | CompletionBody) -> tuple[TokenLayout, int]:
    """Return the tokens of a prompt, and the number of its documents, 0 for a plain prompt.

    The layout of a plain prompt has one document, under which every method equals vanilla. Raises InputError.
    """
    if isinstance(body, MessagesBody):
        return _tokenize_chat(engine, body)
    if body.documents:
        documents = tuple(map(_paragraph, body.documents))
        return engine.tokenize(Prompt((), documents, (Piece(body.prompt),))), len(documents)
    return tokenize_marked(engine, body.prompt)


def _tokenize_chat(engine: Engine, body: MessagesBody) -> tuple[TokenLayout, int]:
    kwargs = body.chat_template_kwargs
    if body.documents:
        prompt = TASKS[body.task].prompt(
            engine.tokenizer,
            documents=body.documents,
            instruction=body.instruction,
            messages=body.messages,
            chat_template_kwargs=kwargs,
        )
        return engine.tokenize(prompt), len(body.documents)
    if body.instruction or body.task != USUAL_TASK:
        message = f"a task or an instruction was passed without documents; {HOW_TO_GIVE_DOCUMENTS}"
        raise InputError(message, field="documents")
    chat = read_chat(body.messages)
    prompt, num_documents = chat_prompt(engine.tokenizer, chat, chat_template_kwargs=kwargs)
    return engine.tokenize(prompt), num_documents


def _paragraph(document: Document) -> tuple[Piece, ...]:
    """Return title and text, followed by an empty line."""
    return (Piece("\n".join(filter(None, (document.title, document.text))) + "\n\n"),)


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

    def prepare(self, engine: Engine) -> PreparedJob[Event]:
        """Return the job for the queue, with the memory that it takes."""
        num_bytes = engine.run_bytes(self.layout, self.method, self.max_new_tokens)
        return PreparedJob(Work(bytes_at_once=num_bytes), self.events)

    def events(self, engine: Engine) -> Generator[Event, None, None]:
        """Yield the events of the answer, which is that of `Engine.run`."""
        run = prepare_run(engine, self.layout, methods=self.method, max_new_tokens=self.max_new_tokens)

        def compute(control: RunControl) -> Coroutine[None]:
            choose = most_likely if self.num_alternatives is None else self.choose
            answers = yield from run.prefill(control, choose)
            yield from run.decode(answers, control, batch_size=self.batch_size)
            control.report(RunFinished(run.result(answers)))

        return stream_shared(compute)


@dataclass(frozen=True)
class LoadedEngine:
    """Model of the server, which is loaded."""

    engine: Engine
    for_all: bool = True
    sentence: str = ""

    def wait(self, seconds: float) -> Engine:
        """Return the engine."""
        return self.engine


JobEvent = ServerJob | Event | None
"""A job when it is tokenized, an event of its run, or None after some seconds without either."""


async def compute_events(
    runs: Runs,
    run: RunState,
    engine: Engine,
    prepare: Callable[[], ServerJob],
    client: Client,
    disconnect: Awaitable[None],
) -> AsyncGenerator[JobEvent, None]:
    """Yield the job of a request once it is tokenized, None every PING_S seconds, and the events of its run.

    `prepare` tokenizes the request in its place in the queue, where ready requests pass it. Closing the
    generator stops the model within one layer. Raises the errors of `prepare`, QueueFullError, Cancelled when
    `disconnect` has finished, and ApiError if the computation takes more than the time limit of `runs`.
    """
    loop = asyncio.get_running_loop()
    channel: asyncio.Queue[Any] = asyncio.Queue()
    has_left = threading.Event()

    def emit(item: JobEvent | Exception) -> None:
        with suppress(RuntimeError):  # the loop is closed when the server has ended
            loop.call_soon_threadsafe(channel.put_nowait, item)

    def prepare_and_emit(engine: Engine) -> PreparedJob[Event]:
        job = prepare()
        emit(job)
        return job.prepare(engine)

    def work() -> None:
        caller = Caller(client, check=partial(raise_if_cancelled, has_left), check_s=POLL_S)
        job = Job(run.operation, run.methods, prepare_and_emit)
        try:
            with closing(runs.submit(run, job, nullcontext(LoadedEngine(engine)), caller)) as steps:
                for step in steps:
                    if not isinstance(step, str):
                        emit(step)
            if run.end and run.end.reason == "timeout":
                message = f"the answer took more than {run.max_seconds:g} s; shorten documents or the answer"
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
        has_left.set()
        item = None  # see receive_from
