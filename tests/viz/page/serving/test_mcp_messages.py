"""Limits of MCP messages."""

import json
from typing import Any

import pytest
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from pine_engine.web.middleware import http_middleware
from viz.page.common.limits import MAX_VALUES
from viz.page.serving.mcp_messages import MAX_DEPTH, check_mcp_message, message_problem

JOIN = "/gradio_api/queue/join"

CALL = b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"arguments": {"documents": %s}}}'


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b"", "JSON"),
        (b"\xff", "JSON"),
        (b"{", "JSON"),
        (CALL % (b"[" * 60 + b"]" * 60), "50 levels"),
        (CALL % (b'{"a": ' * 100_000 + b"1" + b"}" * 100_000), "50 levels"),
    ],
)
def test_mcp_message_invalid_is_rejected(body: bytes, detail: str) -> None:
    def app(scope: Any, receive: Any, send: Any) -> Any:
        raise AssertionError

    answered = TestClient(http_middleware(check_mcp_message)(app)).post("/gradio_api/mcp/", content=body)
    assert answered.status_code == 400 and detail in answered.json()["detail"]


@pytest.mark.parametrize(
    ("content", "keyword"),
    [
        ([0] * (MAX_VALUES + 1), "values"),
        ([[0] * 1000] * 101, "values"),
        ([{}] * MAX_VALUES, "objects"),
        ({f"k{number}": 0 for number in range(65)}, "keys"),
    ],
)
def test_mcp_message_with_many_values_is_refused(content: Any, keyword: str) -> None:
    assert keyword in (message_problem(CALL % json.dumps(content).encode()) or "")


def test_mcp_message_depth_counts_levels() -> None:
    for depth, is_refused in ((MAX_DEPTH, False), (MAX_DEPTH + 1, True)):
        assert bool(message_problem(b"[" * depth + b"]" * depth)) is is_refused


def test_mcp_message_valid_is_passed_on() -> None:
    async def echo_body(scope: Any, receive: Any, send: Any) -> None:
        await PlainTextResponse((await receive())["body"])(scope, receive, send)

    body = CALL % json.dumps(["[" * 1000, {"a": [None]}]).encode()
    client = TestClient(http_middleware(check_mcp_message)(echo_body))
    assert client.post("/gradio_api/mcp/", content=body).content == body
    assert client.post(JOIN, content=b"any").content == b"any"
