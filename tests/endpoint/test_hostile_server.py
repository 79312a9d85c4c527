"""Hostile and broken servers: replies have limits of size and time, and Stop takes effect at once."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.responses import RedirectResponse, Response, StreamingResponse

from pine_engine import Prompt
from pine_engine.endpoint import client as client_module, replies
from pine_engine.endpoint.client import Endpoint
from pine_engine.errors import Cancelled, EndpointError
from tests.support.api_server import running_app
from tests.support.scripted_endpoint import ScriptedServer, answer, completion, reply_to, request_of

MAX_BYTES = 2**20


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    from pine_engine.endpoint import transport

    monkeypatch.setattr(transport, "MAX_REPLY_BYTES", MAX_BYTES)


def as_json(content: bytes, **headers: str) -> Response:
    return Response(content, media_type="application/json", headers=headers)


class Drip:
    """Endless body, in parts."""

    def __init__(self, part: bytes, seconds: float) -> None:
        self.part, self.seconds, self.num_bytes = part, seconds, 0

    async def parts(self) -> AsyncIterator[bytes]:
        while True:
            self.num_bytes += len(self.part)
            yield self.part
            await asyncio.sleep(self.seconds)

    def response(self, status: int = 200) -> Response:
        return StreamingResponse(self.parts(), status, media_type="application/json")


DEEP = b"[" * 200_000
MANY = json.dumps(completion({"prompt": ""}, **answer("many"))).encode()
MANY_CHOICES = MANY.replace(b'"choices": [', b'"choices": [' + b'{"text": "many"}, ' * 50_000)


@pytest.mark.parametrize(
    "body",
    [DEEP, b'{"choices":' + DEEP, b'{"a":' * 100_000, b'{"choices": [' + b"1" * 9_999, b"\xff\xfe", b"null"],
)
@pytest.mark.parametrize("status", [200, 400])
def test_broken_json_is_one_sentence(
    server: ScriptedServer, endpoint: Endpoint, body: bytes, status: int
) -> None:
    server.respond = lambda _: Response(body, status, media_type="application/json")
    with pytest.raises(EndpointError) as raised:
        reply_to(endpoint)
    assert len(str(raised.value)) < 900 and "\n" not in str(raised.value)


def test_many_choices_take_no_time(server: ScriptedServer, endpoint: Endpoint) -> None:
    server.respond = lambda _: as_json(MANY_CHOICES)
    began = time.monotonic()
    assert reply_to(endpoint).found.text == "many"
    assert time.monotonic() - began < 2


@pytest.mark.parametrize("status", [200, 400])
def test_endless_reply_is_refused(server: ScriptedServer, endpoint: Endpoint, status: int) -> None:
    drip = Drip(b" " * 65536, 0)
    server.respond = lambda _: drip.response(status)
    with pytest.raises(EndpointError, match="larger than 1 MiB"):
        reply_to(endpoint)
    assert drip.num_bytes < 40 * MAX_BYTES  # of two requests, with buffers of the sockets


def test_compressed_reply_is_refused(server: ScriptedServer, endpoint: Endpoint) -> None:
    server.respond = lambda _: as_json(b"x", **{"content-encoding": "gzip"})
    with pytest.raises(EndpointError, match="compressed"):
        reply_to(endpoint)


def test_dripping_reply_ends_at_the_time_limit(
    server: ScriptedServer, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "TIMEOUT_S", 0.5)
    server.respond = lambda _: Drip(b" ", 0.05).response()
    began = time.monotonic()
    with pytest.raises(EndpointError, match="within"):
        reply_to(endpoint)
    assert time.monotonic() - began < 3


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirect_to_another_host_gets_no_prompt(
    server: ScriptedServer, endpoint: Endpoint, status: int
) -> None:
    other = ScriptedServer()
    with running_app(other.app) as address:
        server.respond = lambda _: RedirectResponse(f"{address}/v1/completions", status)
        with pytest.raises(EndpointError, match="another host") as raised:
            reply_to(endpoint)
        assert address in str(raised.value) and not other.bodies
        endpoint.model_ref = "PINE_ENDPOINT"
        with pytest.raises(EndpointError) as raised:
            reply_to(endpoint)
        assert address not in str(raised.value)


def test_redirect_within_the_origin_is_followed(server: ScriptedServer, endpoint: Endpoint) -> None:
    redirects = iter([RedirectResponse("/v1/completions?again", 307), answer()])
    server.respond = lambda _: next(redirects)
    assert reply_to(endpoint).found.text == "x"


@pytest.mark.parametrize("value", ["NaN", "99", "1e999", "-Infinity", "-1e999", '"0"', "true", "null", "1"])
@pytest.mark.parametrize("kind", ["prompt", "messages"])
def test_invalid_log_probability_is_refused(value: str, kind: str) -> None:
    body = json.dumps(completion({kind: ""}, **answer("B", {"B": 0.25})))
    found = replies.parse_completion(body.replace("0.25", "-0.25").encode())
    assert found.first_logprobs == {"B": -0.25}
    with pytest.raises(EndpointError):
        replies.parse_completion(body.replace("0.25", value).encode())
    assert replies.parse_completion(body.replace("0.25", "1e-9").encode()).first_logprobs == {"B": 0.0}


def test_surrogates_become_storable(server: ScriptedServer, endpoint: Endpoint) -> None:
    body = json.dumps(completion({"prompt": ""}, **answer("a\ud800b", {"\udfff": -1.0})))
    server.respond = lambda _: as_json(body.encode())
    reply = reply_to(endpoint)
    assert reply.found.text == "a?b" and reply.first_logprobs == {"?": -1.0}


def test_long_text_and_invalid_counts_are_bounded(
    server: ScriptedServer, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replies, "MAX_TEXT", 1_000)
    server.respond = lambda _: answer("x" * 1_001)
    with pytest.raises(EndpointError, match="1,001"):
        reply_to(endpoint)
    counted = json.dumps(completion({"prompt": ""}, **answer())).replace('_tokens": 3', '_tokens": -3')
    assert replies.parse_completion(counted.encode()).num_tokens == 0


def stop_after(seconds: float) -> Any:
    end = time.monotonic() + seconds

    def check() -> None:
        if time.monotonic() > end:
            raise Cancelled("stopped")

    return check


def slow_names(*_: Any, **__: Any) -> Any:
    time.sleep(4)
    raise OSError("no such host")


@pytest.mark.parametrize("case", ["drip", "flood", "silence", "retry", "names"])
def test_stop_takes_effect_within_a_second(
    server: ScriptedServer, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    monkeypatch.setattr(client_module, "MAX_RETRIES", 4)
    responses: dict[str, Any] = {
        "drip": lambda _: Drip(b" ", 0.01).response(),
        "flood": lambda _: as_json(MANY_CHOICES),
        "retry": lambda _: Response("", 429, headers={"retry-after": "30"}),
    }
    server.respond = responses.get(case, server.respond)
    server.seconds = 3 * (case == "silence")
    if case == "names":
        monkeypatch.setattr(socket, "getaddrinfo", slow_names)
        endpoint._url = "http://slow.example/v1"
    began = time.monotonic()
    requests = (request_of(endpoint, prompt=Prompt("", [str(number)], "?")) for number in range(10**6))
    with pytest.raises(Cancelled):
        for _ in endpoint.send(requests, stop_after(0.5)):
            pass
    assert time.monotonic() - began < 1.5
