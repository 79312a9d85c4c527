"""Tab "Internals": the events of its widgets."""

from typing import Any

import gradio as gr

from tests.support.widgets import built
from viz.page.internals import internals_tab
from viz.page.jobs.loading import EngineSource
from viz.page.jobs.sources import Sources


def test_functions_that_take_an_event_get_it(source: EngineSource) -> None:
    """gradio reads their hints, and one that it cannot resolve hides the event from it, without a word."""

    def build() -> Any:
        with gr.Blocks() as page:
            sources = Sources(source)
            internals_tab(gr.State(None), sources, gr.State(None))
        return page

    taking = {
        function.name: gr.utils.get_type_hints(function.fn).get("event")
        for function in built(build).fns.values()
        if function.name == "open_tab"
    }
    assert taking == {"open_tab": gr.EventData}
