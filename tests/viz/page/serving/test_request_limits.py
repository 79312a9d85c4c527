"""Limits of one request: size and time, errors of gradio, and uploads."""

import asyncio
import errno
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient

from pine_engine.scheduling.work import format_seconds
from pine_engine.web.middleware import http_middleware
from viz.page.common.disk import FULL, Disk
from viz.page.serving import request_limits
from viz.page.serving.request_limits import MAX_BYTES, limit_request, limit_uploads

MB = 1_000_000
JOIN = "/gradio_api/queue/join"
UPLOAD = "/gradio_api/upload"


def answer_of(
    app: Any, receive: Callable[[], Any], path: str = JOIN, *, limit: Any = limit_request, page: Any = None
) -> tuple[int, str]:
    """Return status and body of the answer to a request behind a limit."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "app": page}
    limited: Any = http_middleware(limit)(app)
    asyncio.run(limited(scope, receive, send))
    return sent[0]["status"], sent[1]["body"].decode()


def in_parts(*bodies: bytes) -> list[dict[str, Any]]:
    """Return the messages of a request body, of which the last one has no more."""
    parts = [{"type": "http.request", "body": body, "more_body": True} for body in bodies]
    return [*parts[:-1], parts[-1] | {"more_body": False}]


def receiver(parts: list[dict[str, Any]], seconds: float = 0.0) -> Callable[[], Any]:
    """Return a function that receives and removes the first message, each time after some seconds."""

    async def receive() -> Any:
        time.sleep(seconds)
        return parts.pop(0)

    return receive


async def read_all(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    await PlainTextResponse("read")(scope, receive, send)


@pytest.mark.parametrize(
    ("num_bytes", "path", "status"),
    [(MAX_BYTES, JOIN, 200), (MAX_BYTES + 1, JOIN, 413), (MAX_BYTES + 1, UPLOAD, 200)],
)
def test_request_body_is_limited(num_bytes: int, path: str, status: int) -> None:
    assert answer_of(read_all, receiver(in_parts(b"x" * 9, b"x" * (num_bytes - 9), b"")), path)[0] == status


def test_refused_body_is_received_to_its_end() -> None:
    """A browser reads the answer only after it has sent everything."""
    parts = in_parts(*[b"x" * MB] * 10)

    async def answer_error(scope: Any, receive: Any, send: Any) -> None:
        with pytest.raises(HTTPException):  # FastAPI answers it itself
            await read_all(scope, receive, send)
        await PlainTextResponse("too large", 413)(scope, receive, send)

    assert answer_of(answer_error, receiver(parts))[0] == 413
    assert not parts


def test_request_body_that_stalls_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_limits, "BODY_S", 0.05)
    assert answer_of(read_all, lambda: asyncio.sleep(60))[0] == 408


def test_deadline_of_body_does_not_need_a_free_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_limits, "BODY_S", 0.05)
    assert answer_of(read_all, receiver(in_parts(*[b"x"] * 21), seconds=0.01))[0] == 408


def test_request_complete_body_has_no_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_limits, "BODY_S", 0.05)
    parts = in_parts(b"")

    async def receive() -> Any:
        if not parts:
            await asyncio.sleep(0.2)
        return parts.pop() if parts else {"type": "http.disconnect"}

    async def wait(scope: Any, receive: Any, send: Any) -> None:
        types = [(await receive())["type"], (await receive())["type"]]
        await PlainTextResponse(" ".join(types))(scope, receive, send)

    assert answer_of(wait, receive) == (200, "http.request http.disconnect")


LATE = RuntimeError("<secret>: response already started")
LATE.__cause__ = HTTPException(422)


@pytest.mark.parametrize("error", [KeyError("<secret>"), UnicodeError("<secret>"), RecursionError(), LATE])
def test_request_that_gradio_cannot_read_is_one_log_line(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(scope: Any, receive: Any, send: Any) -> None:
        raise error

    with caplog.at_level(logging.DEBUG, "viz"):
        status, body = answer_of(fail, receiver([]))
    assert status == 400 and "secret" not in body
    assert caplog.messages == [f"POST {JOIN} failed: {type(error).__name__}"]


TAKES_SECONDS: Callable[[Any], str] = format_seconds


@pytest.mark.parametrize("cause", [lambda: os.stat("<secret>"), lambda: TAKES_SECONDS("<secret>")])
def test_error_of_the_server_is_status_500_with_traceback(
    cause: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Of the system, and a TypeError of this package."""

    async def fail(scope: Any, receive: Any, send: Any) -> None:
        cause()

    status, body = answer_of(fail, receiver([]))
    assert status == 500 and "Internal error" in body and "secret" not in body
    assert [record.levelname for record in caplog.records if record.exc_info] == ["ERROR"]


def upload_client(folder: Path, answer: Callable[[Request], Any]) -> TestClient:
    async def upload(request: Request) -> Response:
        answered: Response = await answer(request)
        return answered

    class App(Starlette):
        def get_blocks(self) -> Any:
            return SimpleNamespace(disk=Disk(folder, MB), no_files="")

    routes = [Route(UPLOAD, upload, methods=["POST"])]
    return TestClient(App(routes=routes, middleware=[Middleware(http_middleware(limit_uploads))]))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_upload_that_fills_the_disk_leaves_nothing(number: int, tmp_path: Path) -> None:
    async def fill(request: Request) -> Response:
        (tmp_path / "tmppart").touch()
        async for _ in request.stream():
            raise OSError(number, os.strerror(number))
        raise AssertionError

    rejected = upload_client(tmp_path, fill).post(UPLOAD, content=b"x" * 1000)
    assert (rejected.status_code, rejected.text) == (507, FULL)
    assert list(tmp_path.iterdir()) == []


def test_upload_beyond_quota_is_rejected_while_it_arrives(tmp_path: Path) -> None:
    async def read(request: Request) -> Response:
        return PlainTextResponse(str(sum([len(part) async for part in request.stream()])))

    client = upload_client(tmp_path, read)
    assert client.post(UPLOAD, content=iter([b"x" * 100] * 9)).text == "900"
    assert client.post(UPLOAD, content=iter([b"x" * 90_000] * 30)).status_code == 507


def test_upload_to_read_only_page_is_rejected() -> None:
    parts, unused = in_parts(b"x", b"x", b"x"), Mock()
    page = SimpleNamespace(get_blocks=lambda: SimpleNamespace(no_files="no files"))
    assert answer_of(unused, receiver(parts), UPLOAD, limit=limit_uploads, page=page) == (403, "no files")
    assert parts == [] and not unused.called


def test_upload_other_failure_is_raised(tmp_path: Path) -> None:
    async def fail(_: Request) -> Response:
        raise PermissionError(errno.EACCES, "no")

    with pytest.raises(PermissionError):
        upload_client(tmp_path, fail).post(UPLOAD, content=b"x")
