"""The guided lesson: steps with text and pictures, a quiz to guess before looking, and a page of its own.

All steps are in the HTML. assets/lesson.js shows one at a time and counts the guesses; without a script all
steps and all results are to be seen.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from viz.cards.glossary import PAPER, explanations_html, glossary_html
from viz.drawing.identity import Segment
from viz.drawing.marks import mark, mark_class
from viz.drawing.markup import render
from viz.drawing.picture import Numbers, picture


@dataclass(frozen=True)
class Part:
    """Some sentences and the picture that goes with them.

    text: plain text, or Markup with words explained. picture: HTML, escaped already; "" for none.
    source: whose numbers the picture shows.
    """

    text: str
    picture: str = ""
    source: str = ""


@dataclass(frozen=True)
class Step:
    """One step of the lesson. name: its anchor. section: of the paper, such as "section 3.2".

    live: (tab, label) of the page's pictures that show the same of the reader's own run, None if none does.
    """

    name: str
    heading: str
    parts: tuple[Part, ...]
    section: str
    live: tuple[str, str] | None = None


@dataclass(frozen=True)
class OrderAnswer:
    """What a method answered when the documents stood in this order; segments know their slots."""

    segments: tuple[Segment, ...]
    answer: str
    is_right: bool | None = None
    """None where that is not known."""

    @property
    def mark(self) -> str:
        """Right or wrong; "" where that is not known."""
        return "" if self.is_right is None else mark(float(self.is_right))

    @property
    def mark_class(self) -> str:
        """The class that colours it."""
        return mark_class(float(bool(self.is_right)))

    @property
    def order(self) -> str:
        """The letters in their order: "A B C"."""
        return " ".join(segment.label for segment in self.segments)


@dataclass(frozen=True)
class QuizEntry:
    """One method of the quiz: its answer before and after the exchange, and whether it kept it."""

    method: str
    label: str
    before: str
    after: str
    kept: bool

    @property
    def truth(self) -> str:
        """The guess that is right."""
        return "keeps" if self.kept else "changes"


def lesson(steps: Sequence[Step], *, is_live: bool) -> str:
    """HTML of all steps, with what leads from one to the next.

    is_live: the lesson stands on the page, so that it can point at the workspace and at the live pictures.
    """
    return render("lesson.html", steps=steps, is_live=is_live, paper=PAPER)


def lesson_page(steps: Sequence[Step], *, title: str, about: str, styles: str, scripts: Sequence[str]) -> str:
    """A whole HTML document that needs no server and asks none for anything.

    about: whose numbers it shows. styles, scripts: our own, put into the page as they are.
    """
    assert "</style" not in styles and not any("</script" in script for script in scripts)
    return render(
        "lesson_page.html",
        title=title,
        about=about,
        lesson=lesson(steps, is_live=False),
        glossary=glossary_html(),
        explanations=explanations_html(),
        styles=styles,
        scripts=scripts,
    )


def documents_html(documents: Sequence[tuple[Segment, str]], question: str) -> str:
    """HTML: the texts of the documents, and the question, "" for none."""
    return render("lesson_documents.html", question=question, documents=documents)


def orders_picture(answers: Sequence[OrderAnswer], *, method: str) -> str:
    """HTML: a method's answer in one order of the documents after the other."""
    return picture(
        render("lesson_orders.html", answers=answers),
        name="lesson-orders",
        caption=orders_caption(answers, method=method),
        numbers=Numbers(("order", "answer"), tuple((answer.order, answer.answer) for answer in answers)),
    )


def orders_caption(answers: Sequence[OrderAnswer], *, method: str) -> str:
    """One sentence: whether the answer moved with the order."""
    is_one = all(left.answer == right.answer for left, right in pairwise(answers))
    orders = " and ".join(answer.order for answer in answers)
    if is_one:
        return f"{method}, the same documents in the orders {orders}: here the answer stays."
    return f"{method}, the same documents in the orders {orders}: the answer changes with the order."


def pointing(words: str, *spots: str) -> Markup:
    """Words of a part that show what they say in its picture while they are pointed at, and are shown by it.

    spots: CSS selectors within the part, see page/lesson/spots.py.
    """
    return Markup(render("pointer.html", words=words, shows=", ".join(spots)))


def quiz(question: str, entries: Sequence[QuizEntry], *, afterwards: str = "") -> str:
    """HTML: a guess for each method, then what it did and how many guesses were right.

    afterwards: HTML, escaped already, that is shown with the results.
    """
    return render("lesson_quiz.html", question=question, entries=entries, afterwards=afterwards)
