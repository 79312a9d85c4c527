"""Limits of one request: size, time, and disk quota of uploads."""

import logging
from contextlib import suppress

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pine_engine.web.middleware import limit_body
from viz.page.common.disk import FULL, DiskFullError, is_disk_full
from viz.page.common.failures import explain, is_request_error
from viz.page.common.limits import MAX_DOCUMENTS, MAX_UPLOAD_MB

log = logging.getLogger(__name__)

MAX_BYTES = 2_000_000  # maximum bytes of a request without files
MAX_REFUSED_BYTES = 20_000_000  # maximum bytes that are received after these, and discarded
MAX_UPLOAD_BYTES = MAX_DOCUMENTS * MAX_UPLOAD_MB * 1_100_000
"""Maximum bytes of a request with files; gradio limits each file."""

BODY_S, BODY_OF_FILES_S = 30.0, 300.0  # seconds in which the whole request must arrive
NOT_UNDERSTOOD = "Invalid request. See docs/api.md."


async def limit_request(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Limit size and time of a request, and turn errors into a sentence, those of the request without log."""
    path = scope["path"].rstrip("/")
    has_files = path.endswith("/upload")
    max_bytes, seconds = (MAX_UPLOAD_BYTES, BODY_OF_FILES_S) if has_files else (MAX_BYTES, BODY_S)
    has_begun = False

    async def send_and_note(message: Message) -> None:
        nonlocal has_begun
        if has_begun and message["type"] == "http.response.start":
            return  # the mcp package begins a response at the end of a stream whose client has left
        has_begun = True
        await send(message)

    limited = limit_body(receive, max_bytes, seconds)

    async def receive_to_end() -> Message:
        """Receive a body too large to its end: a browser reads no answer before it has sent everything."""
        try:
            return await limited()
        except HTTPException as error:
            rest = limit_body(receive, MAX_REFUSED_BYTES, seconds)
            with suppress(HTTPException):
                while error.status_code == 413 and (await rest()).get("more_body", False):
                    pass
            raise

    try:
        await app(scope, receive_to_end, send_and_note)
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
