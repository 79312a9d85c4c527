"""Theme of the page, without requests to other hosts; options and handlers of events; widgets of figures."""

from collections.abc import Callable
from pathlib import Path
from types import MethodType
from typing import Any

import gradio as gr
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs_version
from rcssmin import cssmin
from rjsmin import jsmin

from viz.drawing.markup import FIGURES_CSS
from viz.drawing.scripts import FIGURE_SCRIPTS, join_modules
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


# Theme

ASSETS = Path(__file__).parents[3] / "assets"

SCRIPTS = (*FIGURE_SCRIPTS, ASSETS / "tutorial.js", ASSETS / "terms.js")
"""Modules of the page and of a saved tutorial."""

_SANS = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "Noto Sans", "sans-serif")
_MONO = ("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace")

PLOTLY = ASSETS / "plotly" / "plotly-cartesian.min.js"

PLOTLY_ADDRESS = f"/assets/plotly-{get_plotlyjs_version()}.js"
"""URL of plotly.js; see viz/page/serving/routes.py."""


def page_head() -> str:
    """Return the HTML head of the page with its scripts inlined, without comments and indentation."""
    script = join_modules((*SCRIPTS, *sorted(ASSETS.glob("*.js"))))
    return f'<script>{jsmin(script)}pine.figures.setPlotly("{PLOTLY_ADDRESS}");</script>'


def page_css() -> str:
    """Return the styles of the page, without comments and indentation."""
    return "".join(cssmin(path.read_text(encoding="utf-8")) for path in (FIGURES_CSS, ASSETS / "style.css"))


def page_theme() -> gr.themes.Base:
    """Return the theme of the launch."""
    return gr.themes.Default(
        primary_hue=gr.themes.colors.indigo,
        secondary_hue=gr.themes.colors.indigo,
        neutral_hue=gr.themes.colors.slate,
        font=list(_SANS),
        font_mono=list(_MONO),
    ).set(
        body_background_fill="*neutral_50",
        body_text_color_subdued="*neutral_600",
        body_text_color_subdued_dark="*neutral_400",
        block_shadow="none",
        block_label_background_fill="transparent",
        button_primary_background_fill="*primary_600",
        button_primary_background_fill_hover="*primary_700",
    )
