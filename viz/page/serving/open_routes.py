"""Allowlist of the routes that the page, its API and its tools need; gradio has more."""

import re
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import JSONResponse

from viz.page.common.asgi import App, Receive, Scope, Send

_LOGIN_PAGE = (
    r"theme\.css|favicon\.ico|robots\.txt|manifest\.json|login|logout|health|metrics"
    r"|(?:assets|static|svelte)/.*|gradio_api/theme\.css"
    r"|gradio_api/startup-events"  # gradio's own first request; it starts the queue, once
)
_PAGE = r"config|monitoring/summary"  # the second is for "Use via API"; says nothing here, see app.py
_GRADIO = (
    r"info|openapi\.json|app_id|user|login_check|heartbeat/[^/]+|reset|cancel"
    r"|queue/(?:join|data)|(?:run|api)/[^/]+|call/.+|upload|upload_progress|file=.*|mcp(?:/.*)?"
)

WITHOUT_LOGIN = re.compile(rf"/(?:(?:{_LOGIN_PAGE})/?)?", re.DOTALL)
"""Paths without login: the login form, its assets, the health and gradio's start."""

OPEN = re.compile(rf"/(?:(?:{_LOGIN_PAGE}|{_PAGE}|gradio_api/(?:{_GRADIO}))/?)?", re.DOTALL)

CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f-\x9f]")

CLOSED = "There is nothing at this address."
UNPRINTABLE = (
    "Invalid request address: got a control character, expected printable characters. Remove it, also where "
    "it is percent-encoded."
)
NO_LOGIN = "Not authenticated: this page requires a login. Log in at /login with the name and the password."


class RouteAllowlistMiddleware:
    """ASGI middleware that answers 404 for other paths, 400 for control characters and 401 without login."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or reject it."""
        refusal = _refusal(scope) if scope["type"] == "http" else None
        if refusal is not None:
            status, sentence = refusal
            await JSONResponse({"detail": sentence}, status)(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _refusal(scope: Scope) -> tuple[int, str] | None:
    """Return status and sentence for a rejected request, None for others."""
    path, query = scope["path"], scope["query_string"].decode("latin-1")
    if any(CONTROL_CHARACTER.search(part) for part in (path, query, unquote(query))):
        return 400, UNPRINTABLE
    if not OPEN.fullmatch(path):
        return 404, CLOSED
    if not WITHOUT_LOGIN.fullmatch(path) and not _is_logged_in(scope):
        return 401, NO_LOGIN
    return None


def _is_logged_in(scope: Scope) -> bool:
    """Check whether the page has no login, or the request has a valid cookie, as gradio does."""
    app = scope["app"]
    if app.auth is None:
        return True
    cookies = Request(scope).cookies
    names = (f"access-token-{app.cookie_id}", f"access-token-unsecure-{app.cookie_id}")
    return any(cookies.get(name) in app.tokens for name in names)
