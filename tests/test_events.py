"""Which events of the page wait in the queue in front of the model."""

import gradio as gr
import pytest

from app import build_app
from tests.widgets import built
from viz.page.source import EngineSource


@pytest.fixture(scope="module")
def page() -> gr.Blocks:
    return built(lambda: build_app(EngineSource(lambda: pytest.fail("no model is needed"), "none")))


def test_only_what_runs_the_model_waits_in_the_queue(page: gr.Blocks) -> None:
    queued = [event for event in page.fns.values() if event.queue]
    assert {event.concurrency_limit for event in queued} == {None}  # they wait in a line of the page's own
    assert {event.name for event in queued} == {
        "compare",
        "shuffle",
        "trace",
        "measure",
        "run",
        "_open_stream",
    }
