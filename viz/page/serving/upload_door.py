"""Quota of uploads."""

import json
import logging

from starlette.concurrency import run_in_threadpool
from starlette.responses import PlainTextResponse

from viz.page.common.asgi import App, Message, Receive, Scope, Send
from viz.page.common.disk import FULL, DiskFullError, is_disk_full
from viz.page.serving.front_door import MAX_UPLOAD_BYTES
from viz.page.upstream.guarded import GuardedBlocks

log = logging.getLogger("pine_explorer")

FORBIDDEN = 403

NO_ROOM = 507
"""HTTP status "insufficient storage"."""


class UploadQuotaMiddleware:
    """ASGI middleware that registers uploads with the Disk, and rejects them if it is full."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] == "http" and scope["path"].rstrip("/").endswith("/upload"):
            await self._upload(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _upload(self, scope: Scope, receive: Receive, send: Send) -> None:
        page: GuardedBlocks = scope["app"].get_blocks()
        if page.no_files:
            while (await receive()).get("more_body"):  # a browser hears nothing before it has sent everything
                pass
            await PlainTextResponse(page.no_files, FORBIDDEN)(scope, receive, send)
            return
        disk = page.disk
        announced = dict(scope["headers"]).get(b"content-length", b"")
        size = min(int(announced), MAX_UPLOAD_BYTES) if announced.isdigit() else MAX_UPLOAD_BYTES
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
                await run_in_threadpool(disk.check)
                await self._app(scope, counted, heard)
                return
            except (DiskFullError, OSError) as error:
                if not isinstance(error, DiskFullError) and not is_disk_full(error):
                    raise
                sentence = FULL if isinstance(error, OSError) else str(error)
        log.warning("an upload was refused: %s", sentence.partition(":")[0])
        while more:  # as above
            await counted()
        await PlainTextResponse(sentence, NO_ROOM)(scope, receive, send)
