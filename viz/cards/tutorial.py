"""Guided tutorial: steps with text and pictures, and a quiz to guess before looking.

All steps are in the HTML. assets/lesson.js shows one at a time and counts the guesses; without a script all
steps and results are visible.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from viz.cards.glossary import PAPER, explanations_html, glossary_html
from viz.drawing.identity import Segment
from viz.drawing.markup import render
from viz.drawing.picture import Numbers, picture


@dataclass(frozen=True)
class StepPart:
    """Text of a step, plain or Markup with explained words, and its picture.

    Attributes:
        picture: Escaped HTML; "" for none.
        source: Origin of the numbers of the picture.
    """

    text: str
    picture: str = ""
    source: str = ""


@dataclass(frozen=True)
class Step:
    """Step of the tutorial.

    Attributes:
        name: Anchor of the step.
        section: Section of the paper, such as "section 3.2".
        live: Tab and label of the figures that show the same of the reader's run; None if none does.
    """

    name: str
    heading: str
    parts: tuple[StepPart, ...]
    section: str
    live: tuple[str, str] | None = None


@dataclass(frozen=True)
class OrderedAnswer:
    """Answer to the documents in one order; `is_right` is None where the correct answer is not known."""

    segments: tuple[Segment, ...]
    answer: str
    is_right: bool | None = None

    @property
    def order(self) -> str:
        """Letters of the documents in their order: "A B C"."""
        return " ".join(segment.label for segment in self.segments)


@dataclass(frozen=True)
class QuizEntry:
    """Method of a quiz: its answers before and after two documents were exchanged."""

    method: str
    label: str
    before: str
    after: str
    kept: bool


def tutorial(steps: Sequence[Step], *, is_live: bool) -> str:
    """Render all steps; `is_live` adds links to the form and the figures of the page."""
    return render("lesson.html", steps=steps, is_live=is_live, paper=PAPER)


def tutorial_page(
    steps: Sequence[Step], *, title: str, about: str, styles: str, scripts: Sequence[str]
) -> str:
    """Render an HTML document with the tutorial, which needs no server and no network.

    Args:
        steps: Steps of the tutorial.
        title: Title of the document.
        about: Origin of the numbers.
        styles: Style sheet of the project, inserted without escaping.
        scripts: Scripts of the project, inserted without escaping.
    """
    assert "</style" not in styles and not any("</script" in script for script in scripts)
    return render(
        "lesson_page.html",
        title=title,
        about=about,
        lesson=tutorial(steps, is_live=False),
        glossary=glossary_html(),
        explanations=explanations_html(),
        styles=styles,
        scripts=scripts,
    )


def documents_html(documents: Sequence[tuple[Segment, str]], question: str) -> str:
    """Render the texts of the documents, and the question if there is one."""
    return render("lesson_documents.html", question=question, documents=documents)


def orders_picture(answers: Sequence[OrderedAnswer], *, method: str) -> str:
    """Render a method's answers in one document order after the other."""
    orders = " and ".join(answer.order for answer in answers)
    is_constant = len({answer.answer for answer in answers}) == 1
    finding = "here the answer stays" if is_constant else "the answer changes with the order"
    return picture(
        render("lesson_orders.html", answers=answers),
        name="lesson-orders",
        caption=f"{method}, the same documents in the orders {orders}: {finding}.",
        numbers=Numbers(("order", "answer"), tuple((answer.order, answer.answer) for answer in answers)),
    )


def pointing(words: str, *spots: str) -> Markup:
    """Render words that highlight spots of the picture while they are pointed at, and the other way round.

    `spots` are CSS selectors within the part, see viz/page/lesson/spots.py.
    """
    return Markup(render("pointer.html", words=words, shows=", ".join(spots)))


def quiz(question: str, entries: Sequence[QuizEntry], *, afterwards: str = "") -> str:
    """Render a guess per method, then the results; `afterwards` is escaped HTML shown with them."""
    return render("lesson_quiz.html", question=question, entries=entries, afterwards=afterwards)
