"""Limits of one request: size and time, disk quota of uploads, and form of MCP messages."""

import json
import logging
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pine_engine.server.request_body import limit_body
from viz.page.common.asgi import replay
from viz.page.common.disk import FULL, DiskFullError, is_disk_full
from viz.page.common.failures import MAX_DOCUMENTS, MAX_UPLOAD_MB, explain, is_request_error
from viz.page.jobs.connection_tracker import MCP

log = logging.getLogger(__name__)

MAX_BYTES = 20_000_000  # maximum bytes of a request without files
MAX_UPLOAD_BYTES = MAX_DOCUMENTS * MAX_UPLOAD_MB * 1_100_000
"""Maximum bytes of a request with files; gradio limits each file."""

BODY_S, BODY_OF_FILES_S = 30.0, 300.0  # seconds in which the whole request must arrive
MAX_DEPTH = 50  # maximum nesting depth of an MCP message; a valid call has three levels
NOT_UNDERSTOOD = "Invalid request. See docs/api.md."
TOO_DEEP = f"Invalid JSON: nested deeper than {MAX_DEPTH} levels."
NOT_JSON = "Invalid request body: expected JSON. See docs/api.md."


async def limit_request(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Limit size and time of a request, and turn errors into a sentence, those of the request without log."""
    path = scope["path"].rstrip("/")
    has_files = path.endswith("/upload")
    max_bytes, seconds = (MAX_UPLOAD_BYTES, BODY_OF_FILES_S) if has_files else (MAX_BYTES, BODY_S)
    has_begun = False

    async def send_and_note(message: Message) -> None:
        nonlocal has_begun
        has_begun = True
        await send(message)

    try:
        await app(scope, limit_body(receive, max_bytes, seconds), send_and_note)
        return
    except ClientDisconnect:
        return
    except HTTPException as error:
        status, detail = error.status_code, error.detail
    except Exception as error:
        log.warning("%s %s failed: %s", scope["method"], path, type(error).__name__)
        status, detail = (400, NOT_UNDERSTOOD) if is_request_error(error) else (500, explain(error))
    if not has_begun:
        await JSONResponse({"detail": detail}, status)(scope, receive, send)


async def limit_uploads(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Count uploads in the disk quota; reject them if the page takes no files or the disk is full."""
    if not scope["path"].rstrip("/").endswith("/upload"):
        await app(scope, receive, send)
        return
    page = scope["app"].get_blocks()
    announced = dict(scope["headers"]).get(b"content-length", b"")
    size = min(int(announced), MAX_UPLOAD_BYTES) if announced.isdigit() else MAX_UPLOAD_BYTES
    has_more, status, answer = True, 0, b""

    async def receive_counted() -> Message:
        nonlocal has_more
        message = await receive()
        upload.coming = max(0, upload.coming - len(message.get("body", b"")))
        has_more = message.get("more_body", False)
        return message

    async def send_and_read(message: Message) -> None:
        nonlocal status, answer
        status = message.get("status", status)
        answer += message.get("body", b"")
        if status == 200 and message["type"] == "http.response.body" and not message.get("more_body"):
            page.disk.arrived(json.loads(answer))
        await send(message)

    refusal, reason = 403, page.no_files
    if not reason:
        refusal = 507
        try:
            with page.disk.upload(size) as upload:
                await run_in_threadpool(page.disk.check)
                await app(scope, receive_counted, send_and_read)
            return
        except DiskFullError as error:
            reason = str(error)
        except OSError as error:
            if not is_disk_full(error):
                raise
            reason = FULL
        log.warning("Upload rejected: %s", reason.partition(":")[0])
    while has_more:  # a browser reads no answer before it has sent everything
        has_more = (await receive()).get("more_body", False)
    await PlainTextResponse(reason, refusal)(scope, receive, send)


async def check_mcp_message(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Reject messages that are not JSON or too deep, for which the mcp package logs tracebacks."""
    if scope["method"] != "POST" or not MCP.fullmatch(scope["path"]):
        await app(scope, receive, send)
        return
    body = await Request(scope, receive).body()
    if problem := message_problem(body):
        await JSONResponse({"detail": problem}, 400)(scope, receive, send)
        return
    await app(scope, replay(body, receive), send)


def message_problem(body: bytes) -> str | None:
    """Describe the error of a message; None for a valid one."""
    try:
        level: list[Any] = [json.loads(body)]
    except RecursionError:
        return TOO_DEEP
    except ValueError:
        return NOT_JSON
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for value in level
            if isinstance(value, dict | list)
            for inner in (value.values() if isinstance(value, dict) else value)
        ]
        if not level:
            return None
    return TOO_DEEP
