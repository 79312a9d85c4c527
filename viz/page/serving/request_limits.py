"""Limits of one request: size and time, disk quota of uploads, and form of MCP messages."""

import json
import logging
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pine_engine.server.web import limit_body
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
    has_more = True

    async def receive_counted() -> Message:
        nonlocal has_more
        message = await receive()
        has_more = message.get("more_body", False)
        await run_in_threadpool(page.disk.check, len(message.get("body", b"")))
        return message

    status, reason = 403, page.no_files
    if not reason:
        try:
            with page.disk.upload():
                await app(scope, receive_counted, send)
            return
        except DiskFullError as error:
            status, reason = 507, str(error)
        except OSError as error:
            if not is_disk_full(error):
                raise
            status, reason = 507, FULL
        log.warning("Upload rejected: %s", reason.partition(":")[0])
    while has_more:  # a browser reads no answer before it has sent everything
        has_more = (await receive()).get("more_body", False)
    await PlainTextResponse(reason, status)(scope, receive, send)


async def check_mcp_message(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Reject messages that are not JSON or too deep, for which the mcp package logs tracebacks."""
    if scope["method"] != "POST" or not MCP.fullmatch(scope["path"]):
        await app(scope, receive, send)
        return
    body = await Request(scope, receive).body()
    if problem := message_problem(body):
        await JSONResponse({"detail": problem}, 400)(scope, receive, send)
        return
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return messages.pop() if messages else await receive()

    await app(scope, receive_again, send)


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
