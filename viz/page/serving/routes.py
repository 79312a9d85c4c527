"""Routes of the server in addition to those of gradio: health, metrics, plotly.js, languages and the card."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from pine_engine.web.health import Metrics, health_record
from viz.page.common.look import PLOTLY, PLOTLY_ADDRESS
from viz.page.jobs.sources import Sources
from viz.page.serving.languages import later_texts
from viz.page.serving.page_head import CARD, CARD_ADDRESS


def add_routes(app: Starlette, sources: Sources, num_sessions: Callable[[], int]) -> None:
    """Add /health, /metrics and plotly.js before the routes of gradio, which match any path."""
    began, runs = time.monotonic(), sources.runs

    async def health(_: Request) -> Response:
        stage = sources.main.status.stage
        record = health_record(stage, sources.main.model_name, runs, time.monotonic() - began)
        return JSONResponse(record, 200 if stage == "ready" else 503)

    async def metrics(_: Request) -> Response:
        gauges = {
            "ready": int(sources.main.status.stage == "ready"),
            "uptime_seconds": round(time.monotonic() - began, 1),
            "running": runs.num_running,
            "waiting": runs.queue.waiting,
            "sessions": num_sessions(),
        }
        return Metrics(gauges, {"runs": ("outcome", runs.outcomes)}).response()

    routes: dict[str, Callable[[Request], Any]] = {
        "/health": health,
        "/metrics": metrics,
        PLOTLY_ADDRESS: lambda _: FileResponse(PLOTLY),
        CARD_ADDRESS: lambda _: FileResponse(CARD),
    }
    for address, texts in later_texts().values():
        routes[address] = partial(lambda texts, _: Response(texts, media_type="application/json"), texts)
    app.router.routes[:0] = [Route(path, answer) for path, answer in routes.items()]
