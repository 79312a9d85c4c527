"""HTML document of pictures and figures that needs no server and no network."""

import re
from collections.abc import Sequence

from viz.drawing.markup import render

# Templates escape every value, so that an attribute ends at the next '"', and JSON in them has no "<".
_PICK = re.compile(r' data-pick="[^"]*"')
_CLICK = re.compile(r"\. Click (a cell )?to (select|compare) [^.\"<]*\.")


def strip_interaction(html: str) -> str:
    """Remove selections by click, and the sentences about them, which work on the page only."""
    return _CLICK.sub(".", _PICK.sub("", html))


def pictures_page(
    sections: Sequence[tuple[str, str, Sequence[str]]],
    *,
    run: str,
    title: str,
    about: str,
    styles: str,
    scripts: Sequence[str],
) -> str:
    """Render a document of pictures, `about` the origin of its numbers.

    A section is a heading, HTML of pictures, and figures from `packed_json`. `run` is escaped HTML of the
    question, the documents and the answers. Styles and scripts are inserted without escaping; with figures,
    plotly.js is the first script.
    """
    assert "</style" not in styles and not any("</script" in script for script in scripts)
    static = [
        (heading, strip_interaction(html), list(map(strip_interaction, figures)))
        for heading, html, figures in sections
    ]
    texts = {"title": title, "about": about, "run": run}
    return render("pictures_page.html", sections=static, styles=styles, scripts=scripts, **texts)
