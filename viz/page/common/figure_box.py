"""A plotly figure on the page: what it picks, focus, zoom and cursor outlive every redraw
(viz/drawing/figures.js)."""

from typing import TYPE_CHECKING, Any

import gradio as gr

from viz.export.packed import packed_json

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def build_figure(elem_id: str, *, picks_itself: bool = False, **options: Any) -> gr.HTML:
    """Makes a place for a figure, empty. options: of gr.HTML.

    picks_itself: whether what is picked in it comes as its own event `select`, and not to the selection that
    the pictures of "Internals" share.
    """
    pick = "(what) => trigger('select', what)" if picks_itself else "null"
    draw = f"window.pineFigures.mount(element, () => props.value, (draw) => watch('value', draw), {pick});"
    return gr.HTML("", elem_id=elem_id, html_template="<figure></figure>", js_on_load=draw, **options)


def figure_value(figure: "Figure | None") -> str:
    """What such a place shows: a figure, or nothing for None."""
    return "" if figure is None else packed_json(figure)
