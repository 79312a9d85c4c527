"""HTML of this package: templates, which escape all values, the frame of a picture, and text of values.

A picture is HTML with caption, numbers and buttons, which viz/drawing/pictures.js makes interactive.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from jinja2.utils import htmlsafe_json_dumps
from numpy.typing import NDArray

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


# Text

_VISIBLE = str.maketrans({" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍", "\u00a0": "⍽"})


def format_value(value: float) -> str:
    """Format with three significant digits; "0" only for exactly zero."""
    if value == 0:
        return "0"
    return f"{value:#.3g}".rstrip(".") if 1e-3 <= abs(value) < 1e3 else f"{value:.2e}"


def format_short(value: float) -> str:
    """Format with two significant digits, three from 100 on; "0" only for exactly zero."""
    if value == 0:
        return "0"
    return f"{value:#.2g}" if abs(value) < 9.95 else f"{value:.0f}"


def format_difference(value: float) -> str:
    """Format a difference of logits or log-probabilities; "0.0" only for exactly zero."""
    if math.isnan(value):
        return "NaN"
    if value == 0:
        return "0.0"
    return f"{value:.1e}" if abs(value) < 1e-3 else f"{value:.3g}"


def format_percent(share: float) -> str:
    """Format a probability or share with two digits; "100%" only for exactly one."""
    text = format_short(100 * share)
    return f"{'>99' if text == '100' and share < 1 else text}%"


def plain_values(values: NDArray[np.float32]) -> tuple[float | None, ...]:
    """Return float32 values (N,) with the shortest digits that identify them; None for NaN."""
    return tuple(None if np.isnan(value) else float(str(value)) for value in values)


def visible_text(text: str) -> str:
    """Replace blanks and control characters by visible signs; "∅" for an empty text."""
    signs = text.translate(_VISIBLE)
    return "".join(sign if sign.isprintable() else f"\\u{ord(sign):04x}" for sign in signs) or "∅"


def shorten(text: str, limit: int) -> str:
    """Shorten a text to `limit` characters, the last one "…" if it was cut."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def join_words(words: Sequence[str]) -> str:
    """Join as "a", "a and b", "a, b and c"."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))
