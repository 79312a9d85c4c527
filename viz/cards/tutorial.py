"""Guided tutorial: steps with one figure each, guesses before the results, and explanations of terms.

All steps are in the HTML. assets/tutorial.js shows one at a time and counts the guesses; without a script all
texts and results are visible.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from markupsafe import Markup, escape

from viz.drawing.identity import Segment
from viz.drawing.markup import render
from viz.export.standalone import packed_json, strip_interaction

PAPER = "https://arxiv.org/abs/2407.01100"

CONTENT: dict[str, Any] = tomllib.loads(Path(__file__).with_name("tutorial.toml").read_text(encoding="utf-8"))

TERMS: dict[str, str] = CONTENT["terms"]

_LINK = re.compile(r"\[([^]]+)\]\((term|mark):([\w -]+)\)")
"""Words of a text that explain a term, or highlight a mark of the figure: [words](term:name)."""


@dataclass(frozen=True)
class Step:
    """Step of the tutorial."""

    name: str  # its anchor
    heading: str
    text: str  # paragraphs with links to terms and marks
    section: str  # of the paper, such as "section 3.2"
    live: str = ""  # label of the tab with the same figure of the reader's run
    picture: str = ""  # escaped HTML
    source: str = ""  # origin of the numbers of the picture

    @property
    def paragraphs(self) -> list[Markup]:
        """The text as HTML."""
        return paragraphs(self.text)

    @property
    def marks(self) -> set[str]:
        """Names of the marks that the text highlights."""
        return {name for _, kind, name in _LINK.findall(self.text) if kind == "mark"}


def paragraphs(text: str) -> list[Markup]:
    """Return the paragraphs of a text with links, as HTML."""
    return [Markup(_LINK.sub(_link, str(escape(part)))) for part in text.strip().split("\n\n")]


def _link(match: re.Match[str]) -> str:
    words, kind, name = Markup(match[1]), match[2], match[3]
    return term(name, words) if kind == "term" else render("pointer.html", words=words, mark=name)


def tutorial(steps: Sequence[Step], *, is_live: bool) -> str:
    """Render all steps; `is_live` adds links to the form and the figures of the page."""
    return render("tutorial.html", steps=steps, is_live=is_live, paper=PAPER)


def tutorial_page(
    steps: Sequence[Step], *, run: str, title: str, about: str, styles: str, scripts: Sequence[str]
) -> str:
    """Render an HTML document with the tutorial, which needs no server and no network.

    `run` is from `run_html`. Styles and scripts are inserted without escaping, plotly.js first.
    """
    assert "</style" not in styles and not any("</script" in script for script in scripts)
    return render(
        "tutorial_page.html",
        title=title,
        about=about,
        run=run,
        tutorial=tutorial(steps, is_live=False),
        glossary=glossary_html(),
        explanations=explanations_html(),
        styles=styles,
        scripts=scripts,
    )


def run_html(
    question: str, documents: Sequence[tuple[Segment, str]], answers: Mapping[str, str] | None = None
) -> str:
    """Render the question, the texts of the documents, and the answers by label of the method."""
    return render("run.html", question=question, documents=documents, answers=answers or {})


def quiz(question: str, answers: Mapping[str, Sequence[str]], *, figure: str, explanation: str = "") -> str:
    """Render a guess per method, and the results, which are hidden before.

    `answers` has the answers in all orders by label of the method; figure and explanation are escaped HTML.
    """
    entries = [(label, list(dict.fromkeys(texts))) for label, texts in answers.items()]
    return render(
        "tutorial_quiz.html", question=question, entries=entries, figure=figure, explanation=explanation
    )


def figure_html(figures: Mapping[str, go.Figure], *, label: str = "", note: str = "") -> str:
    """Render figures by the text of their button; a switch shows one and viz/drawing/figures.js draws it."""
    packed = [strip_interaction(packed_json(figure)) for figure in figures.values()]
    return render("figure.html", figures=packed, names=list(figures), label=label, note=note)


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
