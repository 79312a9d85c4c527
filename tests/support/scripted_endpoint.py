"""Scripted server with the interface of the OpenAI API, and requests to it."""

import asyncio
from collections.abc import Callable
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pine_engine import METHODS, Prompt
from pine_engine.endpoint.client import Endpoint
from pine_engine.endpoint.replies import Reply
from pine_engine.endpoint.requests import TextRequest

KEY = "sk-secret"
PROMPT = Prompt("", ["b", "a"], "?")
USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}


def answer(text: str = "x", logprobs: dict[str, float] | None = None, **fields: str) -> dict[str, Any]:
    """Return the parts of a completion. logprobs: of the likely first tokens; fields: of the message."""
    return {"text": text, "logprobs": logprobs, "fields": fields}


def completion(
    body: dict[str, Any],
    text: str,
    logprobs: dict[str, float] | None,
    fields: dict[str, str],
    finish_reason: str = "length",
) -> dict[str, Any]:
    """Return a completion of the kind of a request."""
    kept: dict[str, Any] | None = None
    if "prompt" in body:
        kept = None if logprobs is None else {"top_logprobs": [logprobs] if logprobs else []}
        choice: dict[str, Any] = {"text": text, **fields}
    else:
        tops = [{"token": token, "logprob": value} for token, value in (logprobs or {}).items()]
        content = [{**tops[0], "top_logprobs": tops}] if tops else []
        kept = None if logprobs is None else {"content": content}
        choice = {"message": {"role": "assistant", "content": text, **fields}}
    choices = [{"index": 0, "finish_reason": finish_reason, "logprobs": kept, **choice}]
    return {"id": "1", "object": "", "created": 0, "model": "m", "choices": choices, "usage": USAGE}


def failure(status: int, message: str, code: str = "") -> Response:
    return JSONResponse({"error": {"message": message, "code": code}}, status)


class ScriptedServer:
    """Server whose answers are those of `respond`; it keeps the requests."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.respond: Callable[[dict[str, Any]], Any] = lambda _: answer()
        self.active = self.most_active = 0
        self.seconds = 0.0
        routes = [
            Route(path, self.handle, methods=["POST"]) for path in ("/v1/chat/completions", "/v1/completions")
        ]
        self.app = Starlette(routes=routes)

    async def handle(self, request: Request) -> Response:
        body = await request.json()
        self.bodies.append(body)
        self.keys.append(request.headers["authorization"])
        self.active += 1
        self.most_active = max(self.active, self.most_active)
        await asyncio.sleep(self.seconds)
        self.active -= 1
        found = self.respond(body)
        return found if isinstance(found, Response) else JSONResponse(completion(body, **found))


def request_of(
    endpoint: Endpoint, method: str = "vanilla", prompt: Prompt = PROMPT, **options: Any
) -> TextRequest:
    return TextRequest(endpoint.tokenize(prompt), METHODS[method], 5, **options)


def reply_to(endpoint: Endpoint, **options: Any) -> Reply:
    ((_, reply),) = endpoint.send([request_of(endpoint, **options)])
    return reply
