"""Client of a scripted server: requests, limits, repeats, and one sentence for each kind of failure."""

import json
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from hypothesis import given, strategies as st
from starlette.responses import JSONResponse, PlainTextResponse, Response

from pine_engine import METHODS, TASKS, InputError, Prompt
from pine_engine.endpoint import client as client_module
from pine_engine.endpoint.client import Endpoint
from pine_engine.endpoint.failures import RefusalError
from pine_engine.endpoint.replies import parse_completion
from pine_engine.endpoint.requests import TextRequest, describe_requests
from pine_engine.endpoint.text_layout import TextTokenizer
from pine_engine.errors import Cancelled, EndpointError
from tests.support.errors import has_field
from tests.support.scripted_endpoint import (
    KEY,
    PROMPT,
    ScriptedServer,
    answer,
    completion,
    failure,
    reply_to,
    request_of,
)

CHAT = TASKS["retrieval_qa"].prompt(TextTokenizer(), question="Who?", documents=["b", "a"])


def test_request_is_greedy_and_has_key_and_extra_fields(server: ScriptedServer, endpoint: Endpoint) -> None:
    endpoint.extra_body = {"repeat_penalty": 1.0}
    reply = reply_to(endpoint)
    assert (reply.found.text, reply.num_prompt_tokens, reply.num_tokens) == ("x", 7, 3)
    expected = {"model": "m", "prompt": "ba?", "temperature": 0, "seed": 0, "max_tokens": 5}
    assert server.bodies == [expected | endpoint.extra_body]
    assert server.keys == [f"Bearer {KEY}"] and KEY not in repr(endpoint)


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
    thoughts = iter(("one", "two"))
    server.respond = lambda _: answer("a", reasoning_content=next(thoughts))
    assert reply_to(endpoint, is_repeated=True).is_repeatable is True
    described = describe_requests([request_of(endpoint), request_of(endpoint, is_repeated=True)])
    assert described.startswith("requests: 3,")


@pytest.mark.parametrize("prompt", [PROMPT, CHAT], ids=["text", "chat"])
def test_likely_first_tokens_are_returned(server: ScriptedServer, endpoint: Endpoint, prompt: Prompt) -> None:
    for logprobs in ({"B": -0.1, "A": -2.5}, {}):
        server.respond = partial(lambda logprobs, _: answer("B", logprobs), logprobs)
        assert reply_to(endpoint, prompt=prompt, has_logprobs=True).first_logprobs == logprobs
    assert 20 in (server.bodies[0]["logprobs"], server.bodies[0].get("top_logprobs"))
    server.respond = lambda _: answer("B")
    with pytest.raises(EndpointError, match="log-probabilities"):
        reply_to(endpoint, prompt=prompt, has_logprobs=True)


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
def test_thinking_part_is_no_answer(content: Any, found: tuple[str, str, bool]) -> None:
    for kind in ("prompt", "messages"):
        assert parse_completion(json.dumps(completion({kind: ""}, **content)).encode()).found == found


def test_hidden_thinking_that_fills_the_limit_is_unfinished() -> None:
    body = json.dumps(completion({"messages": ""}, **answer(""))).encode()
    assert parse_completion(body).found == ("", "", False)


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


@given(st.lists(JUNK | CHOICES, max_size=2), COUNTS, JUNK)
def test_junk_is_a_reply_or_refused(choices: list[Any], usage: Any, error: Any) -> None:
    completion = {"choices": choices, "usage": usage, "error": error}
    with suppress(RefusalError):
        reply = parse_completion(json.dumps(completion).encode())
        assert isinstance(reply.found.text, str) and isinstance(reply.found.thinking, str)
        assert isinstance(reply.num_tokens, int) and isinstance(reply.num_prompt_tokens, int)


@pytest.mark.parametrize(
    ("response", "words"),
    [
        (failure(401, f"Incorrect API key: {KEY}"), "OPENAI_API_KEY"),
        (failure(403, "no"), "OPENAI_API_KEY"), (failure(404, "unknown model"), "--model"),
        (failure(429, f"slow down, {KEY}"), "slow down"), (failure(400, "no seed"), "no seed"),
        (failure(500, "broken"), "broken"), (PlainTextResponse("<html>"), "/v1"),
        (JSONResponse({"choices": []}), "/v1"), (JSONResponse([]), "/v1"),
        (Response("<html>", media_type="application/json"), "/v1"),
        (Response(b"\xff", media_type="application/json"), "/v1"),
    ],
)  # fmt: skip
def test_failure_is_one_sentence_without_the_key(
    server: ScriptedServer, endpoint: Endpoint, response: Response, words: str
) -> None:
    server.respond = lambda _: response
    with pytest.raises(EndpointError) as raised:
        list(endpoint.send([request_of(endpoint) for _ in range(4)]))
    message = str(raised.value)
    assert words in message and endpoint.model_ref in message
    assert KEY not in message and "\n" not in message


REFUSALS = [
    (failure(400, "flagged as violence", "content_filter"), "flagged as violence"),
    (failure(400, "too long", "context_length_exceeded"), "too long for m: too long"),
    (failure(403, "flagged by moderation"), "flagged by moderation"),
    (JSONResponse({"detail": "不允许"}, 422), "不允许"),
    (failure(413, "large"), "too long"),
    (failure(500, "crashed"), "crashed"),
    (JSONResponse({"error": {"code": 502, "message": "no provider"}}), "no provider"),
    (Response(b'{"error": "\\ud800 broken"}', media_type="application/json"), "? broken"),
    (JSONResponse({"choices": [{"error": {"message": "upstream"}, "text": ""}]}), "upstream"),
    (answer("Some") | {"finish_reason": "content_filter"}, "content_filter"),
    (answer("", refusal="I cannot help."), "I cannot help."),
]


@pytest.mark.parametrize(("response", "words"), REFUSALS)
@pytest.mark.parametrize("place", range(3))
def test_refusal_belongs_to_its_request(
    server: ScriptedServer, endpoint: Endpoint, response: Any, words: str, place: int
) -> None:
    replies = iter([response if number == place else answer(str(number)) for number in range(3)])
    server.respond = lambda _: next(replies)
    endpoint.max_concurrency = 1
    found = [reply for _, reply in endpoint.send([request_of(endpoint)] * 3)]
    assert words in found[place].error and len(server.bodies) == 3
    others = [reply for index, reply in enumerate(found) if index != place]
    assert not any(reply.error for reply in others) and all(reply.found.text for reply in others)


@pytest.mark.parametrize(("count", "num_probes"), [(1, 1), (4, 1), (12, 2)])
def test_all_prompts_refused_are_kept_apart_from_parameters(
    server: ScriptedServer, endpoint: Endpoint, count: int, num_probes: int
) -> None:
    prompts: list[str] = []

    def respond(body: dict[str, Any]) -> Any:
        prompts.append(body["prompt"])
        return answer() if body["prompt"] == "Hello." else failure(403, "flagged")

    server.respond = respond
    replies = [reply for _, reply in endpoint.send([request_of(endpoint)] * count)]
    assert len(replies) == count and all("flagged" in reply.error for reply in replies)
    assert prompts.count("Hello.") == num_probes
    server.respond = lambda _: failure(400, "Unsupported value: 'temperature' must be 1")
    server.bodies.clear()
    with pytest.raises(EndpointError, match="temperature") as raised:
        list(endpoint.send([request_of(endpoint)] * 1000))
    assert '{"temperature": null}' in str(raised.value) and len(server.bodies) < 15


def test_probe_has_the_form_of_the_chat(server: ScriptedServer, endpoint: Endpoint) -> None:
    server.respond = lambda _: failure(400, "no")
    with pytest.raises(EndpointError):
        reply_to(endpoint, prompt=CHAT)
    sent, probe = (body["messages"] for body in server.bodies)
    assert [one["role"] for one in probe] == [one["role"] for one in sent]
    assert {one["content"] for one in probe} == {"Hello"}


def test_failure_of_all_follows_the_answers_that_arrive(server: ScriptedServer, endpoint: Endpoint) -> None:
    prompts = [Prompt("", [str(number)], "?") for number in range(9)]
    requests = [TextRequest(endpoint.tokenize(prompt), METHODS["vanilla"], 5) for prompt in prompts]
    server.seconds = 0.1
    server.respond = lambda body: failure(429, "quota") if body["prompt"] == "0?" else answer(body["prompt"])
    texts = []
    with pytest.raises(EndpointError, match="quota"):
        for _, reply in endpoint.send(requests):
            texts.append(reply.found.text)
    assert {"1?", "2?"} <= set(texts) and len(texts) < 8


def test_refused_repetition_keeps_the_answer(server: ScriptedServer, endpoint: Endpoint) -> None:
    responses = iter([answer("x"), failure(403, "flagged"), answer("x"), failure(429, "quota")])
    server.respond = lambda _: next(responses)
    for _ in range(2):
        reply = reply_to(endpoint, is_repeated=True)
        assert (reply.found.text, reply.is_repeatable, reply.error) == ("x", None, "")


def test_null_removes_a_field(server: ScriptedServer, endpoint: Endpoint) -> None:
    assert endpoint.is_greedy
    endpoint.extra_body = {"temperature": None, "seed": None, "max_tokens": None, "top_k": 1}
    reply_to(endpoint)
    assert server.bodies == [{"model": "m", "prompt": "ba?", "top_k": 1}]
    assert not endpoint.is_greedy
    endpoint.extra_body = {"max_completion_tokens": 9}
    reply_to(endpoint)
    assert "max_tokens" not in server.bodies[1] and server.bodies[1]["max_completion_tokens"] == 9
    with pytest.raises(InputError):
        Endpoint("http://h/v1", "m", extra_body={"model": None})


def reasoning_model(body: dict[str, Any]) -> Any:
    if "max_tokens" in body:
        words = "Unsupported parameter: 'max_tokens' is not supported with this model. "
        return failure(400, f"{words}Use 'max_completion_tokens' instead.", "unsupported_parameter")
    return answer()


def test_limit_of_reasoning_models_is_tried_once(server: ScriptedServer, endpoint: Endpoint) -> None:
    server.respond, endpoint.max_concurrency = reasoning_model, 1
    for _ in range(2):
        assert not any(reply.error for _, reply in endpoint.send([request_of(endpoint)] * 2))
    limits = ["max_completion_tokens" if "max_completion_tokens" in body else "" for body in server.bodies]
    assert limits == ["", *["max_completion_tokens"] * 4]
    assert server.bodies[1]["max_completion_tokens"] == 5 and server.bodies[1]["temperature"] == 0


def test_refused_value_of_the_limit_is_not_renamed(server: ScriptedServer, endpoint: Endpoint) -> None:
    for words in ("max_tokens is too large: at most 4", "maximum context length; max_tokens"):
        server.respond = partial(lambda words, _: failure(400, words), words)
        with pytest.raises(EndpointError):
            reply_to(endpoint)
    assert len(server.bodies) >= 2 and not any("max_completion_tokens" in body for body in server.bodies)


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


NO_ADDRESSES = (
    *("127.0.0.1:8000", "ftp://host/v1", "http://", "http://[::1/v1", "http://host:x/v1"),
    *("http://\u200b/v1", "https://name:key@host/v1", "https://host/v1?key=1"),
)
NO_KEYS = ("secret\n", " secret", "sec\x00ret", "sécret", "\u200bsecret", "sec\ud800ret")


@pytest.mark.parametrize(
    ("url", "key", "field"),
    [*((url, None, "endpoint") for url in NO_ADDRESSES),
     *(("http://h/v1", key, "OPENAI_API_KEY") for key in NO_KEYS)],
)  # fmt: skip
def test_invalid_address_or_key_is_refused(url: str, key: str | None, field: str) -> None:
    with pytest.raises(InputError, check=has_field(field)) as raised:
        Endpoint(url, "m", api_key=key)
    assert key is None or key not in str(raised.value)
