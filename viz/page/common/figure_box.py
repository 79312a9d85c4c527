"""Plotly figure on the page; viz/drawing/figures.js keeps selection, focus and zoom across redraws."""

from typing import Any

import gradio as gr
import plotly.graph_objects as go

from viz.export.packed import packed_json


def build_figure(elem_id: str, *, picks_itself: bool = False, **options: Any) -> gr.HTML:
    """Build an empty figure; `picks_itself` sends selections as its own event `select`."""
    pick = "(what) => trigger('select', what)" if picks_itself else "null"
    draw = f"window.pineFigures.mount(element, () => props.value, (draw) => watch('value', draw), {pick});"
    return gr.HTML("", elem_id=elem_id, html_template="<figure></figure>", js_on_load=draw, **options)


def figure_value(figure: go.Figure | None) -> str:
    """Return the value that shows a figure; "" for None."""
    return "" if figure is None else packed_json(figure)
