"""Health of the process: /health as JSON and /metrics for Prometheus, answered outside the queue."""

import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from viz.page.jobs.sources import Sources

PROJECT = Path(__file__).parents[3] / "pyproject.toml"


def version() -> str:
    """Return the version of the page, also without installation."""
    return str(tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["version"])


def health(sources: Sources, *, began: float) -> dict[str, Any]:
    """Return the content of /health; `began` is time.monotonic() at the start."""
    runs, waiting = sources.runs, sources.queue.waiting
    return {
        "status": sources.main.status.stage,
        "model": sources.main.model_name,
        "version": version(),
        "uptime_s": round(time.monotonic() - began, 1),
        "runs": runs.outcomes.total(),
        "running": runs.open - waiting,
        "failures": runs.outcomes["failed"],
        "waiting": waiting,
    }


def metrics(sources: Sources, *, began: float, sessions: int) -> str:
    """Return the content of /metrics; `sessions` is the number in memory."""
    runs, waiting = sources.runs, sources.queue.waiting
    lines = [
        "# TYPE pine_ready gauge",
        f"pine_ready {int(sources.main.status.stage == 'ready')}",
        "# TYPE pine_uptime_seconds gauge",
        f"pine_uptime_seconds {time.monotonic() - began:.1f}",
        "# TYPE pine_running gauge",
        f"pine_running {runs.open - waiting}",
        "# TYPE pine_waiting gauge",
        f"pine_waiting {waiting}",
        "# TYPE pine_sessions gauge",
        f"pine_sessions {sessions}",
        "# TYPE pine_runs_total counter",
    ]
    lines += [f'pine_runs_total{{outcome="{outcome}"}} {count}' for outcome, count in runs.outcomes.items()]
    return "\n".join(lines) + "\n"


def add_health(app: Starlette, sources: Sources, sessions: Callable[[], int]) -> None:
    """Add both routes before those of gradio, which match any path."""
    began = time.monotonic()

    async def answer_health(_: Request) -> Response:
        status = health(sources, began=began)
        return JSONResponse(status, status_code=200 if status["status"] == "ready" else 503)

    async def answer_metrics(_: Request) -> Response:
        return PlainTextResponse(metrics(sources, began=began, sessions=sessions()))

    app.router.routes[:0] = [Route("/health", answer_health), Route("/metrics", answer_metrics)]
