"""Which addresses are answered: those that the page, its calls and its tools need.

gradio has more, for things that this page does not do: components and recordings of others, statistics, files
of other servers, an editor.
"""

import re

from starlette.responses import JSONResponse

from viz.page.common.asgi import App, Receive, Scope, Send

_PAGE = (
    r"config|theme\.css|favicon\.ico|robots\.txt|manifest\.json|login|logout|health|metrics"
    r"|monitoring/summary"  # asked for by "Use via API"; says nothing here, see app.py
    r"|(?:assets|static|svelte)/.*"
)
_GRADIO = (
    r"info|openapi\.json|app_id|user|login_check|startup-events|theme\.css|heartbeat/[^/]+|reset|cancel"
    r"|queue/(?:join|data)|(?:run|api)/[^/]+|call/.+|upload|upload_progress|file=.*|mcp(?:/.*)?"
)

OPEN = re.compile(rf"/(?:(?:{_PAGE}|gradio_api/(?:{_GRADIO}))/?)?", re.DOTALL)

CLOSED = "There is nothing at this address."


class OpenRoutes:
    """ASGI middleware that answers 404 for all other addresses."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes the request on, or answers that nothing is there."""
        if scope["type"] == "http" and not OPEN.fullmatch(scope["path"]):
            await JSONResponse({"detail": CLOSED}, 404)(scope, receive, send)
            return
        await self._app(scope, receive, send)
