"""Client of a scripted server: requests, limits, repeats, and one sentence for each kind of failure."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from hypothesis import given, strategies as st
from openai.types import Completion
from openai.types.chat import ChatCompletion
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from pine_engine import METHODS, TASKS, InputError, Prompt
from pine_engine.endpoint import client as client_module
from pine_engine.endpoint.client import Endpoint, TextRequest, describe_requests
from pine_engine.endpoint.replies import UNREADABLE, Reply, read_completion
from pine_engine.endpoint.text_layout import TextTokenizer
from pine_engine.errors import Cancelled, EndpointError
from tests.support.api_server import running_app

KEY = "sk-secret"
PROMPT = Prompt("", ["b", "a"], "?")
CHAT = TASKS["retrieval_qa"].prompt(TextTokenizer(), question="Who?", documents=["b", "a"])
USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}


def answer(text: str = "x", logprobs: dict[str, float] | None = None, **fields: str) -> dict[str, Any]:
    """Return the parts of a completion. logprobs: of the likely first tokens; fields: of the message."""
    return {"text": text, "logprobs": logprobs, "fields": fields}


def completion(
    body: dict[str, Any], text: str, logprobs: dict[str, float] | None, fields: dict[str, str]
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
    choices = [{"index": 0, "finish_reason": "length", "logprobs": kept, **choice}]
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


@pytest.fixture
def server() -> ScriptedServer:
    return ScriptedServer()


@pytest.fixture
def endpoint(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.setattr(client_module, "MAX_RETRIES", 0)
    with running_app(server.app) as address:
        yield Endpoint(f"{address}/v1", "m", api_key=KEY, max_concurrency=3)


def request_of(
    endpoint: Endpoint, method: str = "vanilla", prompt: Prompt = PROMPT, **options: Any
) -> TextRequest:
    return TextRequest(endpoint.tokenize(prompt), METHODS[method], 5, **options)


def reply_to(endpoint: Endpoint, **options: Any) -> Reply:
    ((_, reply),) = endpoint.send([request_of(endpoint, **options)])
    return reply


def test_request_is_greedy_and_has_key_and_extra_fields(server: ScriptedServer, endpoint: Endpoint) -> None:
    endpoint.extra_body = {"repeat_penalty": 1.0}
    reply = reply_to(endpoint)
    assert (reply.found.text, reply.num_prompt_tokens, reply.num_tokens) == ("x", 7, 3)
    expected = {
        "model": "m",
        "prompt": "ba?",
        "temperature": 0,
        "seed": 0,
        "max_tokens": 5,
        "repeat_penalty": 1.0,
    }
    assert server.bodies == [expected]
    assert server.keys == [f"Bearer {KEY}"]
    assert KEY not in repr(endpoint)


def test_documents_are_sorted_by_their_bytes(server: ScriptedServer, endpoint: Endpoint) -> None:
    reply_to(endpoint, method="reorder_content")
    assert server.bodies[0]["prompt"] == "ab?"


def test_concurrency_is_limited_and_replies_belong_to_requests(
    server: ScriptedServer, endpoint: Endpoint
) -> None:
    server.seconds = 0.05
    server.respond = lambda body: answer(body["prompt"])
    prompts = [Prompt("", [str(number)], "?") for number in range(9)]
    requests = [TextRequest(endpoint.tokenize(prompt), METHODS["vanilla"], 5) for prompt in prompts]
    texts = {request: reply.found.text for request, reply in endpoint.send(requests)}
    assert [texts[request] for request in requests] == [f"{number}?" for number in range(9)]
    assert server.most_active == 3


def test_repeated_request_is_compared(server: ScriptedServer, endpoint: Endpoint) -> None:
    assert reply_to(endpoint).is_repeatable is None
    assert reply_to(endpoint, is_repeated=True).is_repeatable is True
    texts = iter("ab")
    server.respond = lambda _: answer(next(texts))
    reply = reply_to(endpoint, is_repeated=True)
    assert (reply.found.text, reply.is_repeatable) == ("a", False)
    assert (
        describe_requests([request_of(endpoint), request_of(endpoint, is_repeated=True)]).split()[1] == "3,"
    )


@pytest.mark.parametrize("prompt", [PROMPT, CHAT], ids=["text", "chat"])
def test_likely_first_tokens_are_returned(server: ScriptedServer, endpoint: Endpoint, prompt: Prompt) -> None:
    for logprobs in ({"B": -0.1, "A": -2.5}, {}):
        server.respond = partial(lambda logprobs, _: answer("B", logprobs), logprobs)
        assert reply_to(endpoint, prompt=prompt, has_logprobs=True).first_logprobs == logprobs
    assert 20 in (server.bodies[0]["logprobs"], server.bodies[0].get("top_logprobs"))
    server.respond = lambda _: answer("B")
    with pytest.raises(EndpointError, match="log-probabilities"):
        reply_to(endpoint, prompt=prompt, has_logprobs=True)


@pytest.mark.parametrize("prompt", [PROMPT, CHAT], ids=["text", "chat"])
@pytest.mark.parametrize(
    ("content", "found"),
    [
        (answer("B", reasoning_content="So."), ("So.", "B", True)),
        (answer("", reasoning="So."), ("So.", "", False)),
        (answer("<think>\nSo.\n</think>\n\nB"), ("So.", "B", True)),
        (answer("So.</think>B"), ("So.", "B", True)),
        (answer("<think>So"), ("So", "", False)),
        (answer("B"), ("", "B", True)),
    ],
)
def test_thinking_part_is_no_answer(
    server: ScriptedServer, endpoint: Endpoint, prompt: Prompt, content: Any, found: tuple[str, str, bool]
) -> None:
    server.respond = lambda _: content
    assert reply_to(endpoint, prompt=prompt).found == found


JUNK: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda parts: st.lists(parts, max_size=2) | st.dictionaries(st.text(max_size=5), parts, max_size=2),
)
TOKEN_FIELDS = dict.fromkeys(("token", "logprob", "top_logprobs"), JUNK)
TOKENS: Any = st.lists(st.fixed_dictionaries({}, optional=TOKEN_FIELDS))
LOGPROBS: Any = JUNK | st.fixed_dictionaries({}, optional={"content": JUNK | TOKENS, "top_logprobs": JUNK})
MESSAGES: Any = st.fixed_dictionaries({}, optional={"content": JUNK, "reasoning": JUNK})
CHOICES: Any = st.fixed_dictionaries(
    {}, optional={"message": JUNK | MESSAGES, "text": JUNK, "logprobs": LOGPROBS, "finish_reason": JUNK}
)
COUNTS: Any = JUNK | st.fixed_dictionaries({}, optional={"completion_tokens": JUNK, "prompt_tokens": JUNK})


@given(st.sampled_from([ChatCompletion, Completion]), st.lists(JUNK | CHOICES, max_size=2), COUNTS)
def test_junk_is_a_reply_or_refused(kind: Any, choices: list[Any], usage: Any) -> None:
    completion = kind.construct(choices=choices, usage=usage)  # as the client does, without a check
    with suppress(*UNREADABLE):
        reply = read_completion(completion)
        assert isinstance(reply.found.text, str) and isinstance(reply.found.thinking, str)
        assert isinstance(reply.num_tokens, int) and isinstance(reply.num_prompt_tokens, int)


@pytest.mark.parametrize(
    ("response", "words"),
    [
        (failure(401, f"Incorrect API key: {KEY}"), "OPENAI_API_KEY"),
        (failure(403, "no"), "OPENAI_API_KEY"),
        (failure(404, "unknown model"), "--model"),
        (failure(429, f"slow down, {KEY}"), "slow down"),
        (failure(400, "no seed"), "no seed"),
        (failure(500, "broken"), "broken"),
        (PlainTextResponse("<html>"), "/v1"),
        (JSONResponse({"choices": []}), "/v1"),
        (JSONResponse([]), "/v1"),
        (Response("<html>", media_type="application/json"), "/v1"),
        (Response(b"\xff", media_type="application/json"), "/v1"),
    ],
)
def test_failure_is_one_sentence_without_the_key(
    server: ScriptedServer, endpoint: Endpoint, response: Response, words: str
) -> None:
    server.respond = lambda _: response
    with pytest.raises(EndpointError) as raised:
        list(endpoint.send([request_of(endpoint) for _ in range(4)]))
    message = str(raised.value)
    assert words in message and endpoint.model_ref in message
    assert KEY not in message and "\n" not in message


def test_long_prompt_fails_alone(server: ScriptedServer, endpoint: Endpoint) -> None:
    replies = iter([failure(400, "too long", "context_length_exceeded"), answer()])
    server.respond = lambda _: next(replies)
    endpoint.max_concurrency = 1
    errors = [reply.error for _, reply in endpoint.send([request_of(endpoint)] * 2)]
    assert "too long" in errors[0] and not errors[1]


def test_slow_and_missing_servers_are_named(
    server: ScriptedServer, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.seconds = 0.3
    monkeypatch.setattr(client_module, "TIMEOUT_S", 0.05)
    with pytest.raises(EndpointError, match="within 0.05 s"):
        reply_to(endpoint)
    with pytest.raises(EndpointError, match="cannot be reached"):
        reply_to(Endpoint("http://127.0.0.1:1/v1", "m"))


def test_stopped_requests_are_cancelled(server: ScriptedServer, endpoint: Endpoint) -> None:
    server.seconds = 1
    checks = Counter[str]()

    def check() -> None:
        checks["check"] += 1
        if checks["check"] == 3:
            raise Cancelled("stopped")

    with pytest.raises(Cancelled):
        list(endpoint.send([request_of(endpoint)], check))


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:8000",
        "ftp://host/v1",
        "http://",
        "http://[::1/v1",
        "http://host:x/v1",
        "http://\u200b/v1",
        "https://name:key@host/v1",
        "https://host/v1?key=1",
    ],
)
def test_invalid_address_is_refused(url: str) -> None:
    with pytest.raises(InputError) as raised:
        Endpoint(url, "m")
    assert raised.value.field == "endpoint"


@pytest.mark.parametrize("name", METHODS)
def test_only_methods_of_texts_run(name: str) -> None:
    if name in ("vanilla", "reorder_content"):
        Endpoint.check_method(METHODS[name])
    else:
        with pytest.raises(InputError, match=name):
            Endpoint.check_method(METHODS[name])
