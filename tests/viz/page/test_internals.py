"""Tab "Internals": the events of its widgets."""

from collections.abc import Callable
from typing import Any

import gradio as gr

from pine_engine.engine.engine import Engine
from tests.support.tokenizers import letter_tokenizer
from tests.support.widgets import built
from viz.page.internals import internals_tab
from viz.page.jobs.loading import EngineSource
from viz.page.jobs.sources import Sources


def test_functions_that_take_an_event_get_it(tiny_llama: Callable[..., Any]) -> None:
    """gradio reads their hints, and one that it cannot resolve hides the event from it, without a word."""
    engine = Engine(tiny_llama(max_context_length=1024), letter_tokenizer(), name="tiny")

    def build() -> Any:
        with gr.Blocks() as page:
            sources = Sources(EngineSource(lambda: engine, "tiny"))
            internals_tab(gr.State(None), sources, gr.State(None))
        return page

    taking = {
        function.name: gr.utils.get_type_hints(function.fn).get("event")
        for function in built(build).fns.values()
        if function.name == "open_tab"
    }
    assert taking == {"open_tab": gr.EventData}
