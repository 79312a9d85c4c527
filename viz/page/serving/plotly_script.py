"""plotly.js served by the page and cached by browsers."""

import gzip
from functools import cache

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from viz.page.common.theme import PLOTLY, PLOTLY_ADDRESS

_A_YEAR = "public, max-age=31536000, immutable"
"""URL with the version, so that caches never serve an old one."""


def add_plotly(app: Starlette) -> None:
    """Add the route before those of gradio, which match any path."""
    app.router.routes[:0] = [Route(PLOTLY_ADDRESS, _answer)]


async def _answer(request: Request) -> Response:
    headers = {"Cache-Control": _A_YEAR, "Vary": "Accept-Encoding"}
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(PLOTLY.read_bytes(), media_type="text/javascript", headers=headers)
    return Response(_packed(), media_type="text/javascript", headers=headers | {"Content-Encoding": "gzip"})


@cache
def _packed() -> bytes:
    return gzip.compress(PLOTLY.read_bytes())
