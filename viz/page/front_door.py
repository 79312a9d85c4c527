"""What stands before gradio: requests that are too large, or that it fails at, are refused in a sentence."""

import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from viz.page.documents import MAX_DOCUMENTS
from viz.page.files import MOST_MB

log = logging.getLogger(__name__)

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

MOST_BYTES = 20_000_000
"""Of a request that brings no files; gradio reads as much as comes."""

MOST_BYTES_OF_FILES = MAX_DOCUMENTS * MOST_MB * 1_100_000
"""Of a request with files; gradio limits each of them, and takes a thousand."""

NOT_UNDERSTOOD = "This request is none that the page makes; docs/api.md says how to call it."


class FrontDoor:
    """ASGI middleware.

    gradio answers a request that names no function of the page with a traceback in the log. Here it is one
    line, and a sentence for whoever asked.
    """

    def __init__(self, app: Callable[[Message, Receive, Send], Awaitable[None]]) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Passes the request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = scope["path"].rstrip("/")
        most = MOST_BYTES_OF_FILES if path.endswith("/upload") else MOST_BYTES
        came, begun = 0, False

        async def counted() -> Message:
            nonlocal came
            message = await receive()
            came += len(message.get("body", b""))
            if came > most:
                raise HTTPException(413, f"This request has more than {most:,} bytes; send less at once.")
            return message

        async def sending(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, counted, sending)
        except Exception as error:
            log.warning("%s %s could not be answered: %s", scope["method"], path, type(error).__name__)
            log.debug("", exc_info=error)
            if not begun:
                await JSONResponse({"detail": NOT_UNDERSTOOD}, 400)(scope, receive, send)
