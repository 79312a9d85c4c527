"""Limits of size and time of requests, and error messages for failures inside gradio."""

import asyncio
import logging

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from viz.page.common.asgi import App, Message, Receive, Scope, Send
from viz.page.common.bounds import MAX_DOCUMENTS, MAX_UPLOAD_MB

log = logging.getLogger(__name__)

MAX_BYTES = 20_000_000
"""Maximum bytes of a request without files."""

MAX_UPLOAD_BYTES = MAX_DOCUMENTS * MAX_UPLOAD_MB * 1_100_000
"""Maximum bytes of a request with files; gradio limits each file."""

BODY_S, BODY_OF_FILES_S = 30.0, 300.0
"""Seconds in which the whole request must arrive."""

NOT_UNDERSTOOD = "This request is none that the page makes; docs/api.md says how to call it."


class RequestLimitMiddleware:
    """ASGI middleware that limits requests and turns errors of gradio into one line of log and a sentence."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = scope["path"].rstrip("/")
        has_files = path.endswith("/upload")
        most, seconds = (MAX_UPLOAD_BYTES, BODY_OF_FILES_S) if has_files else (MAX_BYTES, BODY_S)
        end = asyncio.get_running_loop().time() + seconds
        came, is_all, begun = 0, False, False

        async def counted() -> Message:
            nonlocal came, is_all
            if is_all:  # what comes now is that the caller has left
                return await receive()
            try:
                async with asyncio.timeout_at(end):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(
                    408, f"This request did not come within {seconds:.0f} s; send it anew."
                ) from None
            came += len(message.get("body", b""))
            is_all = not message.get("more_body")
            if came > most:
                raise HTTPException(413, f"This request has more than {most:,} bytes; send less at once.")
            return message

        async def sending(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, counted, sending)
        except HTTPException as error:
            if not begun:
                await JSONResponse({"detail": error.detail}, error.status_code)(scope, receive, send)
        except Exception as error:
            log.warning("%s %s could not be answered: %s", scope["method"], path, type(error).__name__)
            log.debug("", exc_info=error)
            if not begun:
                await JSONResponse({"detail": NOT_UNDERSTOOD}, 400)(scope, receive, send)
