"""HTML of this package: templates, which escape all values, and the frame of a picture.

A picture is HTML with caption, numbers and buttons, which viz/drawing/pictures.js makes interactive.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from jinja2.utils import htmlsafe_json_dumps

FIGURES_CSS = Path(__file__).with_name("figures.css")

FIGURE_SCRIPTS = (Path(__file__).with_name("pictures.js"), Path(__file__).with_name("figures.js"))
"""Scripts in the order in which a document runs them, after plotly.js."""

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


# Pictures

Value = str | int | float | bool | None


@dataclass(frozen=True)
class Numbers:
    """Numbers of a picture or figure, not rounded; None where there is none (masked, not ranked)."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]
    name: str = ""  # stem of its files
    caption: str = ""

    def __post_init__(self) -> None:
        assert all(len(row) == len(self.columns) for row in self.rows)


def picture(body: str, numbers: Numbers, *, readout: str = "") -> str:
    """Render the escaped HTML of a picture with caption, numbers, buttons, and a preview line (`readout`)."""
    rows = [
        [None if isinstance(value, float) and not math.isfinite(value) else value for value in row]
        for row in numbers.rows
    ]
    texts = {"name": numbers.name, "caption": numbers.caption}
    # Escaped as JSON and not as HTML, where every quote would take five characters.
    escaped = htmlsafe_json_dumps(
        {**texts, "columns": numbers.columns, "rows": rows}, ensure_ascii=False, separators=(",", ":")
    )
    return render("picture.html", body=body, numbers=escaped, readout=readout, **texts)


def pick(**fields: Value) -> str:
    """Return the value of a data-pick attribute: fields of the page's Selection that a click sets."""
    return json.dumps(fields)


def switch(label: str, options: Sequence[tuple[str, Mapping[str, Value]]], chosen: str) -> str:
    """Render a row of buttons; `options` are (label, selection), `chosen` is the label of the pressed one."""
    buttons = [(name, pick(**selection), name == chosen) for name, selection in options]
    return render("switch.html", label=label, options=buttons)
