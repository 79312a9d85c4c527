"""Frame of a picture: caption, numbers and buttons, which viz/drawing/pictures.js makes interactive."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jinja2.utils import htmlsafe_json_dumps

from viz.drawing.markup import render

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
