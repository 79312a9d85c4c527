"""Style sheet and scripts of all figures, on the page and in exported documents."""

from pathlib import Path

FIGURES_CSS = Path(__file__).with_name("figures.css")

FIGURE_SCRIPTS = (Path(__file__).with_name("pictures.js"), Path(__file__).with_name("figures.js"))
"""Scripts in the order in which a document runs them, after plotly.js."""


def figure_styles() -> str:
    """Return the style sheet, to be put into an HTML document."""
    return FIGURES_CSS.read_text(encoding="utf-8")
