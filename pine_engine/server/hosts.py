"""Host names under which the server answers, and origins whose pages may use it."""

from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from pine_engine.errors import InputError
from pine_engine.server.schema import ApiError, error_body
from pine_engine.web.addresses import is_among, is_origin, split_netloc
from pine_engine.web.middleware import Handler


def filter_hosts(names: Sequence[str]) -> Handler:
    """Return middleware that rejects requests under other host names, as DNS rebinding sends them."""

    async def handle(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        name, _ = split_netloc(Headers(scope=scope).get("host", ""))
        if is_among(name, names):
            await app(scope, receive, send)
            return
        message = f"unknown host name: got {name!r:.60}, expected {' or '.join(names)}"
        status, content = error_body(ApiError(400, f"{message}; see --host", code="unknown_host"))
        await JSONResponse(content, status)(scope, receive, send)

    return handle


def check_origins(origins: Sequence[str]) -> None:
    """Raise InputError unless each origin is * or has the form in which browsers send it."""
    for origin in origins:
        if origin != "*" and not is_origin(origin):
            expected = "expected * or an origin as browsers send it, such as https://app.example:8080"
            message = f"invalid origin: got {origin!r:.60}, {expected}"
            raise InputError(f"{message}. Correct it in --allowed-origins.", field="allowed_origins")
