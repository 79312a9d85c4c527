"""HTML of this package: templates, which escape all values."""

from pathlib import Path
from typing import Any

import jinja2

FIGURES_CSS = Path(__file__).with_name("figures.css")

_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parents[1] / "templates"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def render(template: str, **data: Any) -> str:
    """Render a template of viz/templates, with every value escaped, as a str that is not escaped again."""
    return str(_ENVIRONMENT.get_template(template).render(**data))


def empty_panel(sentence: str, *, press: str = "", label: str = "") -> str:
    """Render an empty state, with a button that presses the button with the id `press`, if any."""
    return render("empty.html", sentence=sentence, press=press, label=label)


def figure_styles() -> str:
    """Return the style sheet of figures and cards."""
    return FIGURES_CSS.read_text(encoding="utf-8")
