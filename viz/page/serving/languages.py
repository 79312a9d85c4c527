"""Language of the page: that of the address, or else of the browser. assets/language.js translates."""

import hashlib
import json
import tomllib
from functools import cache
from pathlib import Path

from markupsafe import Markup
from starlette.requests import Request

from viz.drawing.markup import render

LANGUAGES_DIR = Path(__file__).parents[2] / "languages"

ENGLISH = "en"  # language of the sources

FIRST_PARTS = ("page", "guess", "documents", "table", "run")
"""Parts of a file with the texts of the first screen; the others are requested at the first move or key."""


@cache
def load_languages() -> dict[str, dict[str, dict[str, str]]]:
    """Return the parts of each language, of texts by the English ones; English has none."""
    paths = sorted(LANGUAGES_DIR.glob("*.toml"))
    return {ENGLISH: {}} | {path.stem: tomllib.loads(path.read_text(encoding="utf-8")) for path in paths}


def language_of(request: Request) -> str:
    """Return the language of a page: `?lang=`, or the first of the browser that there is; else English."""
    accepted = request.headers.get("Accept-Language", "").split(",")  # browsers sort them by preference
    wanted = [request.query_params.get("lang", ""), *(entry.partition(";")[0] for entry in accepted)]
    names = (name.strip().lower().partition("-")[0] for name in wanted)
    return next((name for name in names if name in load_languages()), ENGLISH)


def _pairs(language: str, *, is_first: bool) -> str:
    """Return the pairs of texts of the first parts, or of the others, as JSON."""
    parts = load_languages()[language].items()
    pairs = [pair for name, part in parts if (name in FIRST_PARTS) is is_first for pair in part.items()]
    return json.dumps(pairs, ensure_ascii=False, separators=(",", ":"))


@cache
def later_texts() -> dict[str, tuple[str, str]]:
    """Return the address of the texts that are requested later, and these as JSON, by language."""
    texts = {name: _pairs(name, is_first=False) for name, parts in load_languages().items() if parts}
    digests = {name: hashlib.sha256(text.encode()).hexdigest()[:12] for name, text in texts.items()}
    return {name: (f"/assets/language-{name}-{digests[name]}.json", text) for name, text in texts.items()}


@cache
def language_script(language: str) -> str:
    """Render the script that states language and texts to the scripts of the page."""
    address, _ = later_texts().get(language, ("", ""))
    texts = Markup(_pairs(language, is_first=True).replace("<", r"\u003c"))
    return render("language.html", language=language, texts=texts, address=address)
