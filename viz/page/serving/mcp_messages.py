"""Validation of MCP messages before the mcp package, which logs tracebacks for invalid ones."""

import json
from typing import Any

from starlette.responses import JSONResponse

from viz.page.common.asgi import App, Receive, Scope, Send, read_body, replay
from viz.page.jobs.presence import MCP

MAX_DEPTH = 50
"""Maximum nesting depth; a valid call has three levels."""


class McpValidationMiddleware:
    """ASGI middleware that rejects messages that are not JSON or too deep."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or reject it."""
        if scope["type"] != "http" or scope["method"] != "POST" or not MCP.fullmatch(scope["path"]):
            await self._app(scope, receive, send)
            return
        body = await read_body(receive)
        if body is None:
            return
        if why := message_error(body):
            await JSONResponse({"detail": why}, 400)(scope, receive, send)
            return
        await self._app(scope, replay(body, receive), send)


def message_error(body: bytes) -> str | None:
    """Describe the error of a message; None for a valid one."""
    too_deep = f"This message has lists in lists, more than {MAX_DEPTH} deep; no call of this page has."
    try:
        level: list[Any] = [json.loads(body)]
    except RecursionError:
        return too_deep
    except ValueError:
        return "This message is no JSON; docs/api.md says how an assistant calls the page."
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for value in level
            if isinstance(value, dict | list)
            for inner in (value.values() if isinstance(value, dict) else value)
        ]
        if not level:
            return None
    return too_deep
