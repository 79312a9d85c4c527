"""Routes of the server: health, metrics and plotly.js."""

import threading
from collections.abc import Callable
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from plotly.offline import get_plotlyjs_version
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

import pine_engine
from pine_engine.errors import ModelError, PineError
from pine_engine.scheduling.queue import FairQueue
from pine_engine.scheduling.runs import Runs
from tests.support.metrics import metric_values
from tests.support.running import sources_of
from viz.page.common.look import PLOTLY, PLOTLY_ADDRESS, page_head
from viz.page.jobs.loader import EngineSource
from viz.page.jobs.sources import Sources
from viz.page.serving.middleware import OPEN
from viz.page.serving.routes import add_routes


def served(load: Callable[[], Any]) -> tuple[Sources, TestClient]:
    """Return the engines and a client of an app that, like gradio's, answers any path."""
    app = Starlette(routes=[Route("/{path:path}", lambda _: PlainTextResponse("gradio"))])
    sources = sources_of(EngineSource(load, "tiny"), runs=Runs(FairQueue(3)))
    add_routes(app, sources, lambda: 7)
    return sources, TestClient(app)


def test_health_and_metrics_count_runs() -> None:
    gate = threading.Event()

    def load() -> Any:
        gate.wait(5)
        facts = {"dtype": "float32", "device": "cpu", "max_context_length": 10}
        limits = {"invariance_warning": None, "meets": "placement", "misfit": lambda _: None}
        return SimpleNamespace(model_name="tiny", **facts, **limits)

    sources, client = served(load)
    runs = sources.runs
    sources.main.start()
    loading = client.get("/health")
    assert (loading.status_code, loading.json()["status"], loading.json()["model"]) == (503, "loading", None)
    gate.set()
    sources.main.wait(5)
    with pytest.raises(ZeroDivisionError), runs.recorded(runs.new("compare")):
        raise ZeroDivisionError
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(runs.recorded(runs.new("compare")))
            stack.enter_context(runs.queue.join())
        ready = client.get("/health")
        values = metric_values(client.get("/metrics").text)
    record = ready.json()
    assert ready.status_code == 200 and record.pop("uptime_s") >= 0
    assert record == {
        "status": "ready",
        "model": "tiny",
        "version": pine_engine.__version__,
        "runs": 1,
        "running": 1,
        "failures": 1,
        "waiting": 2,
    }
    assert values["pine_ready",] == values["pine_running",] == 1
    assert (values["pine_waiting",], values["pine_sessions",]) == (2, 7)
    assert values["pine_runs_total", "failed"] == 1
    assert client.get("/other").text == "gradio"


def test_health_model_failed_is_unavailable() -> None:
    sources, client = served(Mock(side_effect=ModelError("model x cannot be found")))
    sources.main.start()
    with pytest.raises(PineError):
        sources.main.wait(5)
    failed = client.get("/health")
    assert (failed.status_code, failed.json()["status"]) == (503, "failed")


def test_plotly_is_served() -> None:
    assert f'"{PLOTLY_ADDRESS}"' in page_head() and OPEN.fullmatch(PLOTLY_ADDRESS)
    assert get_plotlyjs_version() in PLOTLY_ADDRESS
    script = served(lambda: None)[1].get(PLOTLY_ADDRESS)
    assert script.content == PLOTLY.read_bytes()
    assert script.headers["content-type"].startswith("text/javascript")
