"""What every picture has: a caption, its numbers as a table, and buttons that save it.

viz/drawing/pictures.js does the rest in the browser, with no server and no network: it shows the numbers as a
table, saves the picture as PNG, SVG, HTML, CSV and JSON, moves the focus over cells by arrow keys, previews a
cell on hover, and tells the page which one was picked.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jinja2.utils import htmlsafe_json_dumps

from viz.drawing.markup import render

Value = str | int | float | bool | None


@dataclass(frozen=True)
class Numbers:
    """The numbers behind a picture, a row each: what it says to a screen reader, a slide and a program.

    Values are not rounded; None where there is none (masked, not ranked).
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]

    def __post_init__(self) -> None:
        assert all(len(row) == len(self.columns) for row in self.rows)


def picture(
    body: str, *, name: str, caption: str, numbers: Numbers, title: str = "", readout: str = ""
) -> str:
    """HTML: a picture with its caption, its numbers and its buttons.

    body: HTML of the picture, escaped already. name: stem of the files it is saved as. caption: one sentence
    made from the data (layer, head, aggregation, dtype). readout: what the line of the preview says before
    anything is hovered; no such line if empty.
    """
    return render(
        "picture.html",
        body=body,
        name=name,
        title=title,
        caption=caption,
        readout=readout,
        # Escaped as JSON and not as HTML, where every quote would take five characters.
        numbers=htmlsafe_json_dumps(
            {
                "name": name,
                "caption": caption,
                "columns": numbers.columns,
                "rows": [[_plain(value) for value in row] for row in numbers.rows],
            },
            ensure_ascii=False,
            separators=(",", ":"),
        ),
    )


def beside(*pictures: str) -> str:
    """HTML: pictures beside each other where there is room, otherwise one below the other.

    pictures: HTML, escaped already.
    """
    return render("beside.html", pictures=pictures)


def pick(**chosen: Value) -> str:
    """Value of a data-pick attribute: what a click on the element selects, such as query="document 1".

    The names are the fields of the page's Selection, viz/page/inside/selection.py; {"clear": true} goes back.
    """
    return json.dumps(chosen)


def switch(label: str, options: Sequence[tuple[str, Mapping[str, Value]]], chosen: str) -> str:
    """HTML: a row of buttons of which one is pressed; a click picks what stands beside its label.

    options: (label, what it picks). chosen: label of the pressed one.
    """
    return render(
        "switch.html",
        label=label,
        options=[(name, pick(**what), name == chosen) for name, what in options],
    )


def _plain(value: Value) -> Value:
    """JSON has no word for what is not a number."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
