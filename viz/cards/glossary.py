"""Terms with their explanations, and the keys of the page; the texts are in tutorial.toml."""

import tomllib
from pathlib import Path
from typing import Any

from markupsafe import Markup

from viz.drawing.markup import render

PAPER = "https://arxiv.org/abs/2407.01100"

CONTENT: dict[str, Any] = tomllib.loads(Path(__file__).with_name("tutorial.toml").read_text(encoding="utf-8"))

TERMS: dict[str, str] = CONTENT["terms"]


def anchor(name: str) -> str:
    """Return the id of the explanation of a term."""
    return f"term-{name.replace(' ', '_').replace('-', '_')}"


def term(name: str, text: str = "") -> Markup:
    """Render a term, or `text` in its place, as a button that shows its explanation."""
    assert name in TERMS, name
    return Markup(render("term.html", anchor=anchor(name), text=text or name))


def glossary_html() -> str:
    """Render all terms with their explanations as a list."""
    return render("glossary.html", terms=TERMS, paper=PAPER)


def explanations_html() -> str:
    """Render the explanations, hidden until `term` shows them; nothing around them may be hidden."""
    return render("explanations.html", terms=[(anchor(name), name, text) for name, text in TERMS.items()])


def keys_html() -> str:
    """Render the list of keys."""
    return render("keys.html", keys=CONTENT["keys"])
