"""HTML document of pictures and figures that needs no server and no network."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from viz.drawing.markup import render

# Templates escape every value, so that an attribute ends at the next '"', and JSON in them has no "<".
_PICK = re.compile(r' data-pick="[^"]*"')
_CLICK = re.compile(r"(; (a )?|\. A )click [^.\"<]*\.")


class Section(NamedTuple):
    """Part of a document: a heading, HTML of pictures, and figures from `packed_json`."""

    heading: str
    html: str
    figures: tuple[str, ...] = ()


def strip_interaction(html: str) -> str:
    """Remove selections by click, and the sentences about them, which work on the page only."""
    return _CLICK.sub(".", _PICK.sub("", html))


def pictures_page(
    sections: Sequence[Section], *, title: str, about: str, styles: str, scripts: Sequence[str]
) -> str:
    """Render a document of pictures.

    Args:
        sections: Parts of the document.
        title: Title of the document.
        about: Origin of the numbers.
        styles: Style sheet of the project, inserted without escaping.
        scripts: Scripts of the project, inserted without escaping; with figures, plotly.js first.
    """
    assert "</style" not in styles and not any("</script" in script for script in scripts)
    static = [
        Section(
            section.heading, strip_interaction(section.html), tuple(map(strip_interaction, section.figures))
        )
        for section in sections
    ]
    return render(
        "pictures_page.html", sections=static, title=title, about=about, styles=styles, scripts=scripts
    )
