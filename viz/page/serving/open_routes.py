"""Which addresses are answered: those that the page, its calls and its tools need.

gradio has more, for things that this page does not do: components and recordings of others, statistics, files
of other servers, an editor.
"""

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
"""Paths that answer without login: the form for it, its assets, the health and gradio's start."""

OPEN = re.compile(rf"/(?:(?:{_LOGIN_PAGE}|{_PAGE}|gradio_api/(?:{_GRADIO}))/?)?", re.DOTALL)

CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f-\x9f]")

CLOSED = "There is nothing at this address."
UNPRINTABLE = (
    "Invalid request address: got a control character, expected printable characters. Remove it, also where "
    "it is percent-encoded."
)
NO_LOGIN = "Not authenticated: this page requires a login. Log in at /login with the name and the password."


class OpenRoutes:
    """ASGI middleware that answers 404 for all other addresses, and 400 for those with control characters.

    Where the page has a login, all but WITHOUT_LOGIN answer 401 without it: gradio checks most of its routes
    itself, but not each.
    """

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes the request on, or answers that nothing is there."""
        refusal = _refusal(scope) if scope["type"] == "http" else None
        if refusal is not None:
            status, sentence = refusal
            await JSONResponse({"detail": sentence}, status)(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _refusal(scope: Scope) -> tuple[int, str] | None:
    """Return the status and the sentence for a request that is not answered, None for any other."""
    path, query = scope["path"], scope["query_string"].decode("latin-1")
    if any(CONTROL_CHARACTER.search(part) for part in (path, query, unquote(query))):
        return 400, UNPRINTABLE
    if not OPEN.fullmatch(path):
        return 404, CLOSED
    if not WITHOUT_LOGIN.fullmatch(path) and not _is_logged_in(scope):
        return 401, NO_LOGIN
    return None


def _is_logged_in(scope: Scope) -> bool:
    """Check whether the page has no login, or the request has the cookie of one, as gradio checks it."""
    app = scope["app"]
    if app.auth is None:
        return True
    cookies = Request(scope).cookies
    names = (f"access-token-{app.cookie_id}", f"access-token-unsecure-{app.cookie_id}")
    return any(cookies.get(name) in app.tokens for name in names)
