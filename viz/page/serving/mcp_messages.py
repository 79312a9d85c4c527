"""Limits of MCP messages: depth and number of values, before the mcp package parses them."""

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from pine_engine.errors import InputError
from pine_engine.rows.untrusted_json import load_json
from pine_engine.web.middleware import replay
from viz.page.common.failures import explain
from viz.page.common.limits import MAX_VALUES, TOO_MANY_VALUES
from viz.page.jobs.connection_tracker import MCP

MAX_DEPTH = 50  # maximum nesting depth of a message; a valid call has three levels
TOO_DEEP = f"Invalid JSON: nested deeper than {MAX_DEPTH} levels."
NOT_JSON = "Invalid request body: expected JSON. See docs/api.md."


async def check_mcp_message(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Reject messages that are not JSON, too deep or too many values.

    The mcp package logs tracebacks for them, or takes seconds.
    """
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
        level = [load_json(body, "message")]
    except InputError as error:
        is_deep = isinstance(error.__cause__, RecursionError)
        return TOO_DEEP if is_deep else NOT_JSON if error.__cause__ else explain(error)
    num_values = 0
    for _ in range(MAX_DEPTH):
        collections = [value for value in level if isinstance(value, list | dict)]
        num_values += sum(map(len, collections))
        if num_values > MAX_VALUES:
            return TOO_MANY_VALUES
        level = [item for one in collections for item in (one.values() if isinstance(one, dict) else one)]
        if not level:
            return None
    return TOO_DEEP
