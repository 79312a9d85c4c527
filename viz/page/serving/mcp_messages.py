"""What assistants send (MCP): read here first, because the package that answers fails at nonsense aloud."""

import json
from typing import Any

from starlette.responses import JSONResponse

from viz.page.common.asgi import App, Receive, Scope, Send, read_body, replay
from viz.page.jobs.presence import MCP

MOST_DEPTH = 50
"""Of lists in lists; a call has three."""


class McpMessages:
    """ASGI middleware that refuses what is no JSON, or too deep to be a call."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes the request on, or answers what is wrong with it."""
        if scope["type"] != "http" or scope["method"] != "POST" or not MCP.fullmatch(scope["path"]):
            await self._app(scope, receive, send)
            return
        body = await read_body(receive)
        if body is None:
            return
        if why := wrong_with(body):
            await JSONResponse({"detail": why}, 400)(scope, receive, send)
            return
        await self._app(scope, replay(body, receive), send)


def wrong_with(body: bytes) -> str | None:
    """What is wrong with a message, in words; None for one that can be answered."""
    too_deep = f"This message has lists in lists, more than {MOST_DEPTH} deep; no call of this page has."
    try:
        level: list[Any] = [json.loads(body)]
    except RecursionError:
        return too_deep
    except ValueError:
        return "This message is no JSON; docs/api.md says how an assistant calls the page."
    for _ in range(MOST_DEPTH):
        level = [
            inner
            for value in level
            if isinstance(value, dict | list)
            for inner in (value.values() if isinstance(value, dict) else value)
        ]
        if not level:
            return None
    return too_deep
