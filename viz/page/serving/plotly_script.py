"""plotly.js, served by the page itself; browsers keep it, and ask for it when a figure is first drawn."""

import gzip
from functools import cache

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from viz.page.common.theme import PLOTLY, PLOTLY_ADDRESS

_A_YEAR = "public, max-age=31536000, immutable"
"""The address is another for each version, so that what a browser has kept never grows old."""


def add_plotly(app: Starlette) -> None:
    """Adds the script to a launched page, before gradio's own routes, which would take any address."""
    app.router.routes[:0] = [Route(PLOTLY_ADDRESS, _answer)]


async def _answer(request: Request) -> Response:
    headers = {"Cache-Control": _A_YEAR, "Vary": "Accept-Encoding"}
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(PLOTLY.read_bytes(), media_type="text/javascript", headers=headers)
    return Response(_packed(), media_type="text/javascript", headers=headers | {"Content-Encoding": "gzip"})


@cache
def _packed() -> bytes:
    return gzip.compress(PLOTLY.read_bytes())
