"""The style sheet that all figures share; whatever shows one has it beside it, or in it."""

from pathlib import Path

FIGURES_CSS = Path(__file__).with_name("figures.css")


def figure_styles() -> str:
    """The style sheet as text, to be put into a page."""
    return FIGURES_CSS.read_text(encoding="utf-8")
