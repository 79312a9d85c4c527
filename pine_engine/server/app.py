"""Application with the interface of the OpenAI API: routes, API keys, and errors of requests."""

import asyncio
import hashlib
import hmac
import logging
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from http import HTTPStatus
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from pine_engine.engine.engine import Engine
from pine_engine.engine.events import PrefillDone, TokenGenerated
from pine_engine.errors import Cancelled, InputError
from pine_engine.methods.plan import check_scores
from pine_engine.methods.table import get_method
from pine_engine.models.resources import free_memory
from pine_engine.rows.untrusted_json import load_json
from pine_engine.scheduling.queue import FairQueue
from pine_engine.scheduling.run_state import End
from pine_engine.scheduling.runs import Runs
from pine_engine.scheduling.turns import Client
from pine_engine.server.hosts import filter_hosts
from pine_engine.server.jobs import (
    HOW_TO_GIVE_DOCUMENTS,
    JobEvent,
    ServerJob,
    check_characters,
    compute_events,
    tokenize_body,
)
from pine_engine.server.responses import Reply, ResponseText, server_sent
from pine_engine.server.responses_api import as_response, stream_response
from pine_engine.server.schema import (
    ApiError,
    ChatBody,
    CompletionBody,
    MessagesBody,
    ResponsesBody,
    error_body,
    parse_body,
)
from pine_engine.server.settings import ServerSettings
from pine_engine.web.addresses import sender_of
from pine_engine.web.health import Metrics, health_record
from pine_engine.web.middleware import http_middleware, limit_body

log = logging.getLogger(__name__)

MAX_BYTES = 2_000_000  # of the body of a request
BODY_S = 30.0  # seconds in which the body must arrive
DEFAULT_MODEL = "default"  # another name of the model, for clients that require one
PLAIN_METHOD = "vanilla"  # of requests without documents
CLIENT_CLOSED_REQUEST = 499  # status, in logs only, of nginx for a client that has disconnected
STREAM_HEADERS = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",  # nginx would wait for the end of the response
}


class Server:
    """An engine with its queue, counts and routes."""

    def __init__(self, engine: Engine, settings: ServerSettings) -> None:
        self.engine, self.settings = engine, settings
        queue = FairQueue(
            settings.queue_size,
            min(settings.max_runs_per_client, max(1, settings.queue_size // 2)),
            max_active=settings.max_active_runs,
            free_memory=partial(free_memory, engine.device),
            advice="Try again in a minute.",
        )
        self.runs = Runs(queue, max_seconds=settings.max_seconds, shares_equal_runs=False)
        self.tokens: Counter[str] = Counter()
        method = engine.default_method if settings.method is None else get_method(settings.method)
        engine.check_method(method)
        self._method = method.name
        self._keys = [_digest(key) for key in settings.api_keys]
        self._began = time.monotonic()

    def app(self) -> Starlette:
        """Return the ASGI application."""
        routes = [
            Route("/v1/chat/completions", self._answers(ChatBody), methods=["POST"]),
            Route("/v1/completions", self._answers(CompletionBody), methods=["POST"]),
            Route("/v1/responses", self._answers(ResponsesBody), methods=["POST"]),
            Route("/v1/models", self._guarded(self._models)),
            Route("/v1/models/{name:path}", self._guarded(self._model)),
            Route("/health", self._health),
            Route("/metrics", self._metrics),
        ]
        middleware = [Middleware(http_middleware(filter_hosts(self.settings.allowed_hosts)))]
        if origins := self.settings.allowed_origins:
            methods = ["GET", "POST"]
            middleware.append(
                Middleware(CORSMiddleware, allow_origins=origins, allow_methods=methods, allow_headers=["*"])
            )
        return Starlette(
            routes=routes, middleware=middleware, exception_handlers={HTTPException: _http_error}
        )

    def _answers(
        self, model: type[MessagesBody] | type[CompletionBody]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            body = await asyncio.to_thread(self._parse, await _read_body(request), model)
            text = ResponseText(body.stop)
            events = self._events(request, body, text)
            while (job := await anext(events)) is None:
                pass  # errors before the job, such as a full queue, have their own status
            assert isinstance(job, ServerJob)
            reply = Reply(self.engine, job, text, is_chat=isinstance(body, MessagesBody))
            if body.stream:
                if isinstance(body, ResponsesBody):
                    parts = stream_response(reply, events, body)
                else:
                    parts = reply.stream(events, include_usage=bool(body.stream_options.include_usage))
                return StreamingResponse(self._closing(parts, events), headers=STREAM_HEADERS)
            async with aclosing(events):
                answer = await reply.read(events)
            return JSONResponse(as_response(answer, body) if isinstance(body, ResponsesBody) else answer)

        return self._guarded(endpoint)

    def _guarded(
        self, endpoint: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return an endpoint that checks the API key, and answers errors in the form of the OpenAI API."""

        async def guarded(request: Request) -> Response:
            try:
                request.state.key = self._check_key(request.headers.get("authorization", ""))
                return await endpoint(request)
            except (ClientDisconnect, Cancelled):
                return Response(status_code=CLIENT_CLOSED_REQUEST)
            except Exception as error:
                status, content = self._error_body(error)
                if not hasattr(request.state, "run"):  # runs count their ends
                    self.runs.outcomes["rejected"] += status < HTTPStatus.INTERNAL_SERVER_ERROR
                headers = {"Retry-After": "5"} if status == HTTPStatus.TOO_MANY_REQUESTS else None
                return JSONResponse(content, status, headers=headers)

        return guarded

    async def _closing(
        self, parts: AsyncIterator[str], events: AsyncGenerator[JobEvent, None]
    ) -> AsyncIterator[str]:
        """Yield the parts of a stream, or its error, and close the events."""
        async with aclosing(events):
            try:
                async for part in parts:
                    yield part
            except Cancelled:
                return
            except Exception as error:
                yield server_sent(self._error_body(error)[1])

    def _error_body(self, error: Exception) -> tuple[int, dict[str, Any]]:
        """Return status and body of an error; log those of the server."""
        status, content = error_body(error)
        if status == HTTPStatus.INTERNAL_SERVER_ERROR:
            log.error("request failed", exc_info=error)
        return status, content

    def _check_key(self, header: str) -> str:
        """Return the name of the client's key, "" without keys. Compares with all keys in constant time."""
        if not self._keys:
            return ""
        scheme, _, key = header.partition(" ")
        digest = _digest(key.strip())
        matches = [hmac.compare_digest(digest, accepted) for accepted in self._keys]
        if scheme.lower() != "bearer" or not any(matches):
            message = "invalid API key; send one as the header Authorization: Bearer KEY"
            raise ApiError(401, message, kind="authentication_error", code="invalid_api_key")
        return digest[:16]

    def _parse(
        self, text: bytes, model: type[MessagesBody] | type[CompletionBody]
    ) -> MessagesBody | CompletionBody:
        """Return the body of a request. Raises InputError."""
        body = parse_body(load_json(text), model)
        if isinstance(body, MessagesBody):
            body.chat_template_kwargs = self.settings.chat_template_kwargs | body.chat_template_kwargs
        check_characters(self.engine, body)
        return body

    def _prepare(self, body: MessagesBody | CompletionBody) -> ServerJob:
        """Tokenize a request and return its job. Raises InputError."""
        method_of_model = self._method_of_model(body.model)
        method = body.method or method_of_model
        layout, num_documents = tokenize_body(self.engine, body)
        if method and not num_documents:
            raise InputError(f"method {method} needs documents; {HOW_TO_GIVE_DOCUMENTS}", field="documents")
        name = get_method(method or self._method).name if num_documents else PLAIN_METHOD
        if reason := self.engine.misfit(get_method(name)):
            raise InputError(f"{reason}. Choose another method.", field="method")
        check_scores(layout, [get_method(name)])
        requested = body.max_completion_tokens if isinstance(body, ChatBody) else None
        requested = requested or body.max_tokens
        limit = self.settings.max_new_tokens
        free = self.engine.max_context_length - layout.num_tokens
        max_new_tokens = min(requested, limit) if requested else max(1, min(limit, free))
        try:
            self.engine.check_length(layout, max_new_tokens)
        except InputError as error:
            code = "context_length_exceeded"
            raise ApiError(400, str(error), code=code, field=body.prompt_field) from error
        batch_size = min(2, self.settings.max_active_runs)
        return ServerJob(layout, num_documents, name, max_new_tokens, body.num_alternatives, batch_size)

    def _method_of_model(self, model: str) -> str:
        """Return the method in the name of a model, such as NAME:pine; "" without one. Raises ApiError."""
        name = self.engine.model_name
        if model in ("", DEFAULT_MODEL, name):
            return ""
        if model in self._model_names():
            return model.removeprefix(f"{name}:")
        message = (
            f"unknown model: got {model!r:.60}, expected {name}, {DEFAULT_MODEL}, or {name}:METHOD, such as "
            f"{name}:{self._method}"
        )
        raise ApiError(404, message, code="model_not_found", field="model")

    def _model_names(self) -> list[str]:
        name = self.engine.model_name
        return [name, *(f"{name}:{method.name}" for method in self.engine.methods)]

    async def _events(
        self, request: Request, body: MessagesBody | CompletionBody, text: ResponseText
    ) -> AsyncGenerator[JobEvent, None]:
        """Yield the job of a request and its events until the client disconnects; count outcome and tokens.

        The answer is complete when `text` has a reason for its end.
        """
        address = sender_of(request.client.host) if request.client else ""
        client = Client(address, page=request.state.key or address)
        request.state.run = run = self.runs.new("answer")
        options = (self.runs, run, self.engine, partial(self._prepare, body), client, _disconnect(request))
        num_prompt_tokens = 0
        async with aclosing(compute_events(*options)) as events:
            try:
                async for event in events:
                    if isinstance(event, ServerJob):
                        num_prompt_tokens = event.layout.num_tokens
                    self.tokens["generated"] += isinstance(event, TokenGenerated)
                    self.tokens["prompt"] += num_prompt_tokens * isinstance(event, PrefillDone)
                    yield event
            finally:
                if text.finish_reason:  # the events are closed after a stop string
                    run.end = run.end or End("done")

    async def _models(self, _: Request) -> Response:
        return JSONResponse({"object": "list", "data": [self._card(name) for name in self._model_names()]})

    async def _model(self, request: Request) -> Response:
        name = request.path_params["name"]
        self._method_of_model(name)
        return JSONResponse(self._card(name))

    def _card(self, name: str) -> dict[str, Any]:
        length = self.engine.max_context_length
        return {
            "id": name, "object": "model", "created": 0, "owned_by": "pine_engine", "max_model_len": length
        }  # fmt: skip

    async def _health(self, _: Request) -> Response:
        uptime_s = time.monotonic() - self._began
        return JSONResponse(health_record("ready", self.engine.model_name, self.runs, uptime_s))

    async def _metrics(self, _: Request) -> Response:
        uptime_s = round(time.monotonic() - self._began, 1)
        waiting = self.runs.queue.waiting
        gauges = {"uptime_seconds": uptime_s, "running": self.runs.num_running, "waiting": waiting}
        counters = {"requests": ("outcome", self.runs.outcomes), "tokens": ("kind", self.tokens)}
        return Metrics(gauges, counters).response()


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


async def _read_body(request: Request) -> bytes:
    """Return the body. Raises ApiError if it is too large, too slow, or not JSON."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        # Browsers send other types to any server without a check.
        message = "invalid Content-Type: expected application/json"
        raise ApiError(415, message, code="unsupported_media_type")
    try:
        return await Request(request.scope, limit_body(request.receive, MAX_BYTES, BODY_S)).body()
    except HTTPException as error:
        code = "request_timeout" if error.status_code == HTTPStatus.REQUEST_TIMEOUT else "request_too_large"
        raise ApiError(error.status_code, error.detail, code=code) from error


async def _disconnect(request: Request) -> None:
    """Return when the client has disconnected."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _http_error(_: Request, error: Exception) -> Response:
    """Answer an unknown path or method in the form of the OpenAI API."""
    assert isinstance(error, HTTPException)
    api_error = ApiError(error.status_code, f"{error.detail}; see /v1/models", code="not_found")
    status, content = error_body(api_error)
    return JSONResponse(content, status)
