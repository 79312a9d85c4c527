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
    sections: Sequence[Section], *, run: str, title: str, about: str, styles: str, scripts: Sequence[str]
) -> str:
    """Render a document of pictures, `about` the origin of its numbers.

    `run` is escaped HTML of the question, the documents and the answers. Styles and scripts are inserted
    without escaping; with figures, plotly.js is the first script.
    """
    assert "</style" not in styles and not any("</script" in script for script in scripts)
    static = [
        Section(heading, strip_interaction(html), tuple(map(strip_interaction, figures)))
        for heading, html, figures in sections
    ]
    texts = {"title": title, "about": about, "run": run}
    return render("pictures_page.html", sections=static, styles=styles, scripts=scripts, **texts)
