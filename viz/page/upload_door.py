"""What stands before gradio's upload: one for which there is no room is refused in a sentence."""

import json
import logging

from starlette.concurrency import run_in_threadpool
from starlette.responses import PlainTextResponse

from viz.page.asgi import App, Message, Receive, Scope, Send
from viz.page.disk import FULL, Disk, DiskFullError, is_disk_full
from viz.page.front_door import MOST_BYTES_OF_FILES

log = logging.getLogger("pine_explorer")

NO_ROOM = 507
"""HTTP's status for it: insufficient storage."""


class UploadDoor:
    """ASGI middleware: tells the Disk of the page what comes and what has come, and says when it is full."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes the request on."""
        if scope["type"] == "http" and scope["path"].rstrip("/").endswith("/upload"):
            await self._upload(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _upload(self, scope: Scope, receive: Receive, send: Send) -> None:
        disk: Disk = scope["app"].get_blocks().disk
        announced = dict(scope["headers"]).get(b"content-length", b"")
        size = min(int(announced), MOST_BYTES_OF_FILES) if announced.isdigit() else MOST_BYTES_OF_FILES
        more, status, answer = True, 0, b""

        async def counted() -> Message:
            nonlocal more
            message = await receive()
            upload.coming = max(0, upload.coming - len(message.get("body", b"")))
            more = message.get("more_body", False)
            return message

        async def heard(message: Message) -> None:
            nonlocal status, answer
            status = message.get("status", status)
            answer += message.get("body", b"")
            if status == 200 and message["type"] == "http.response.body" and not message.get("more_body"):
                disk.arrived(json.loads(answer))
            await send(message)

        with disk.upload(size) as upload:
            try:
                await run_in_threadpool(disk.make_room)
                await self._app(scope, counted, heard)
                return
            except (DiskFullError, OSError) as error:
                if not isinstance(error, DiskFullError) and not is_disk_full(error):
                    raise
                sentence = FULL if isinstance(error, OSError) else str(error)
        log.warning("an upload was refused: %s", sentence.partition(":")[0])
        while more:  # a browser hears no answer before it has sent everything
            await counted()
        await PlainTextResponse(sentence, NO_ROOM)(scope, receive, send)
