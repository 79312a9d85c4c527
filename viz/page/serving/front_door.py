"""What stands before gradio: requests that are too large or too slow, or that it fails at, get a sentence."""

import asyncio
import logging

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from viz.page.common.asgi import App, Message, Receive, Scope, Send
from viz.page.common.bounds import MAX_DOCUMENTS, MOST_MB

log = logging.getLogger(__name__)

MOST_BYTES = 20_000_000
"""Of a request that brings no files; gradio reads as much as comes."""

MOST_BYTES_OF_FILES = MAX_DOCUMENTS * MOST_MB * 1_100_000
"""Of a request with files; gradio limits each of them, and takes a thousand."""

BODY_S, BODY_OF_FILES_S = 30.0, 300.0
"""Seconds in which all of a request has to come."""

NOT_UNDERSTOOD = "This request is none that the page makes; docs/api.md says how to call it."


class FrontDoor:
    """ASGI middleware.

    gradio answers a request that names no function of the page with a traceback in the log. Here it is one
    line, and a sentence for whoever asked.
    """

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes the request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = scope["path"].rstrip("/")
        has_files = path.endswith("/upload")
        most, seconds = (MOST_BYTES_OF_FILES, BODY_OF_FILES_S) if has_files else (MOST_BYTES, BODY_S)
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
