"""The one template environment: all HTML of this package is written through it, always escaped."""

from pathlib import Path
from typing import Any

import jinja2

_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parents[1] / "templates"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def render(template: str, **data: Any) -> str:
    """The named template of viz/templates filled with data; every value is escaped.

    Returns a plain str, so that joining it with other HTML never escapes by surprise.
    Raises jinja2.UndefinedError if the template names something that data lacks.
    """
    return str(_ENVIRONMENT.get_template(template).render(**data))


def empty_panel(sentence: str, *, press: str = "", label: str = "") -> str:
    """HTML that only says why there is nothing to draw, or what will be there.

    press: id of the page's button that brings it, which a button with this label presses; none if empty.
    """
    return render("empty.html", sentence=sentence, press=press, label=label)
