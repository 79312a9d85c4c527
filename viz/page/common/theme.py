"""Theme of the page: system fonts, grays, one accent color; nothing is fetched."""

from pathlib import Path

import gradio as gr
from plotly.offline import get_plotlyjs_version

from viz.drawing.markup import FIGURE_SCRIPTS, FIGURES_CSS

ASSETS = Path(__file__).parents[3] / "assets"

STYLESHEETS = (FIGURES_CSS, ASSETS / "style.css")

SCRIPTS = (*FIGURE_SCRIPTS, ASSETS / "tutorial.js")  # scripts of the page and of a saved tutorial
PAGE_SCRIPTS = tuple(
    ASSETS / name
    for name in (
        "clone.js",
        "events.js",
        "answers.js",
        "projector.js",
        "documents.js",
        "order_table.js",
        "why.js",
        "sharing.js",
        "typing.js",
        "keys.js",
    )
)
"""Scripts of the page only."""

_SANS = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "Noto Sans", "sans-serif")
_MONO = ("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace")


PLOTLY = ASSETS / "plotly" / "plotly-cartesian.min.js"

PLOTLY_ADDRESS = f"/static/plotly-{get_plotlyjs_version()}.js"
"""URL of plotly.js; see viz/page/serving/server.py."""


def page_head() -> str:
    """Return the HTML head of the page with its scripts inlined."""
    scripts = [f'window.pinePlotly = "{PLOTLY_ADDRESS}";']
    scripts += [path.read_text(encoding="utf-8") for path in (*SCRIPTS, *PAGE_SCRIPTS)]
    return "".join(f"<script>{script}</script>" for script in scripts)


def page_theme() -> gr.themes.Base:
    """Return the theme of the launch."""
    return gr.themes.Default(
        primary_hue=gr.themes.colors.indigo,
        secondary_hue=gr.themes.colors.indigo,
        neutral_hue=gr.themes.colors.slate,
        text_size=gr.themes.sizes.text_md,
        radius_size=gr.themes.sizes.radius_md,
        spacing_size=gr.themes.sizes.spacing_md,
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
