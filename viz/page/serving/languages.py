"""Language of the page: that of the address, or else of the browser. viz/drawing/language.js translates."""

import json
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from markupsafe import Markup
from starlette.requests import Request

from viz.drawing.markup import render

LANGUAGES_DIR = Path(__file__).parents[2] / "languages"

ENGLISH = "en"  # language of the sources


@cache
def load_languages() -> dict[str, dict[str, str]]:
    """Return the texts of each language by the English ones, from all parts of its file; English has none."""
    languages: dict[str, dict[str, str]] = {ENGLISH: {}}
    for path in sorted(LANGUAGES_DIR.glob("*.toml")):
        parts = tomllib.loads(path.read_text(encoding="utf-8")).values()
        languages[path.stem] = {english: text for part in parts for english, text in part.items()}
    return languages


def language_of(request: Request) -> str:
    """Return the language of a page: `?lang=`, or the first of the browser that there is; else English."""
    wanted = [request.query_params.get("lang", ""), *_accepted(request.headers.get("Accept-Language", ""))]
    names = (name.strip().lower().partition("-")[0] for name in wanted)
    return next((name for name in names if name in load_languages()), ENGLISH)


def _accepted(header: str) -> Iterator[str]:
    """Yield the languages of a header, which browsers sort by preference."""
    for entry in header.split(","):
        yield entry.partition(";")[0]


@cache
def language_script(language: str) -> str:
    """Render the script that states language and texts to the scripts of the page, and to gradio."""
    texts = list(load_languages()[language].items())
    stated = json.dumps({"lang": language, "texts": texts}, ensure_ascii=False)
    return render("language.html", language=language, stated=Markup(stated.replace("<", r"\u003c")))
