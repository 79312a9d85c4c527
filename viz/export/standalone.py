"""Pictures away from the page: a document that needs no server, and their numbers as CSV."""

import csv
import io
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from viz.drawing.markup import render
from viz.drawing.picture import Numbers, Value

# Our templates escape every value, so that an attribute ends at the next '"', and JSON in them has no "<".
_PICK = re.compile(r' data-pick="[^"]*"')
_CLICK = re.compile(r"(; (a )?|\. A )click [^.\"<]*\.")
_NUMBERS = re.compile(r'<div class="pine-numbers" hidden>(.*?)</div>', re.DOTALL)


@dataclass(frozen=True)
class NamedNumbers:
    """The numbers of a picture, with its name and caption."""

    name: str
    caption: str
    numbers: Numbers


def strip_interaction(html: str) -> str:
    """The picture without what only the page can do: a click selects nothing, and no line says it does."""
    return _CLICK.sub(".", _PICK.sub("", html))


@dataclass(frozen=True)
class Section:
    """A part of a page of pictures. html: of pictures. figures: as `packed_json` writes them."""

    heading: str
    html: str
    figures: tuple[str, ...] = ()


def pictures_page(
    sections: Sequence[Section], *, title: str, about: str, styles: str, scripts: Sequence[str]
) -> str:
    """A whole HTML document of pictures that needs no server and asks none for anything.

    about: whose numbers they show. styles, scripts: our own, put into the page as they are; with figures,
    plotly.js first.
    """
    assert "</style" not in styles and not any("</script" in script for script in scripts)
    stilled = [
        replace(
            section,
            html=strip_interaction(section.html),
            figures=tuple(map(strip_interaction, section.figures)),
        )
        for section in sections
    ]
    return render(
        "pictures_page.html", sections=stilled, title=title, about=about, styles=styles, scripts=scripts
    )


def drawn_numbers(html: str) -> list[NamedNumbers]:
    """The numbers of every picture in some HTML, as viz.drawing.picture has put them there."""
    found = [json.loads(written) for written in _NUMBERS.findall(html)]
    return [
        NamedNumbers(
            each["name"], each["caption"], Numbers(tuple(each["columns"]), tuple(map(tuple, each["rows"])))
        )
        for each in found
    ]


def as_csv(numbers: Numbers) -> str:
    """The numbers as CSV; a text that a spreadsheet would run as a formula begins with an apostrophe."""
    written = io.StringIO()
    writer = csv.writer(written)
    writer.writerow(numbers.columns)
    writer.writerows([_no_formula(value) for value in row] for row in numbers.rows)
    return written.getvalue()


def _no_formula(value: Value) -> Value:
    is_formula = isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{value}" if is_formula else value
