"""Options and handlers of events, and widgets of figures."""

from collections.abc import Callable
from types import MethodType
from typing import Any

import gradio as gr
import plotly.graph_objects as go

from viz.export.standalone import packed_json

MODEL_EVENT: dict[str, Any] = {"concurrency_limit": None}
"""Options of events that run the model; they wait in the fair queue and not in that of gradio."""

PRIVATE_EVENT: dict[str, Any] = {
    "show_progress": "hidden",
    "show_progress_on": [],
    "api_visibility": "private",
    "queue": False,
}
"""Options of events that only redraw the page, without the queue.

In the queue an answer can be lost: gradio closes the stream of a session after each last answer. The options
hide progress for all widgets, which saves time in gradio.
"""

NEWEST_EVENT: dict[str, Any] = PRIVATE_EVENT | {"trigger_mode": "always_last"}
"""Options of events of which the last one counts; that of `change` has this mode in any case."""

STATE_EVENT: dict[str, Any] = PRIVATE_EVENT | {"queue": True, "concurrency_limit": None}
"""Options of events that write a state with change listeners, which gradio notifies only in the queue."""


def bind(handler: Callable[..., Any], *first: object) -> Callable[..., Any]:
    """Return the handler of an event with its first arguments set, such as the record of a tab.

    gradio reads the name and the type hints of methods; of a `functools.partial` it reads neither.
    """
    for argument in first:
        handler = MethodType(handler, argument)
    return handler


def build_figure(elem_id: str, *, picks_itself: bool = False, **options: Any) -> gr.HTML:
    """Build an empty plotly figure; `picks_itself` sends selections as its own event `select`.

    viz/drawing/figures.js keeps selection, focus and zoom across redraws.
    """
    pick = "(what) => trigger('select', what)" if picks_itself else "null"
    draw = f"pine.figures.mount(element, () => props.value, (draw) => watch('value', draw), {pick});"
    return gr.HTML("", elem_id=elem_id, html_template="<figure></figure>", js_on_load=draw, **options)


def figure_value(figure: go.Figure | None) -> str:
    """Return the value that shows a figure; "" for None."""
    return "" if figure is None else packed_json(figure)
