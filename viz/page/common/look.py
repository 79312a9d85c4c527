"""Scripts, styles and theme of the page, without requests to other hosts."""

from pathlib import Path

import gradio as gr
from plotly.offline import get_plotlyjs_version
from rcssmin import cssmin
from rjsmin import jsmin

from viz.drawing.markup import FIGURES_CSS
from viz.drawing.scripts import FIGURE_SCRIPTS, join_modules

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
