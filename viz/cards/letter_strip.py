"""The shuffle as a strip of letters: a method a row, an order a column, a letter for each answer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from viz.drawing.identity import document_segment
from viz.drawing.markup import render
from viz.figures.shuffle import Letter, answer_letters


@dataclass(frozen=True)
class InOrders:
    """Answers to one question in several orders of its documents.

    orders: which document, as entered, stands in each slot. answers: by method, one for each order.
    source: whose they are, a sentence.
    """

    orders: tuple[tuple[int, ...], ...]
    answers: Mapping[str, tuple[str, ...]]
    source: str = ""


def letter_strip(
    shown: InOrders, *, labels: Mapping[str, str], is_right: Callable[[str], bool] | None = None
) -> str:
    """HTML table that needs no script.

    labels: of the methods. is_right: whether an answer is right, where that is known.
    """
    texts = [texts[place] for place in range(len(shown.orders)) for texts in shown.answers.values()]
    letters = answer_letters(texts, is_right)
    strips = [(labels[method], [letters[text] for text in texts]) for method, texts in shown.answers.items()]
    return render(
        "letter_strip.html",
        orders=[[document_segment(index) for index in order] for order in shown.orders],
        strips=[(label, strip, _counted(strip)) for label, strip in strips],
        letters=list(letters.values()),
        source=shown.source,
    )


def _counted(strip: Sequence[Letter]) -> str:
    """How many different answers a method gave, and how often the right one: "3 answers, right in 4"."""
    kinds = len({one.letter for one in strip})
    right = "" if strip[0].is_right is None else f", right in {sum(bool(one.is_right) for one in strip)}"
    return f"{kinds} answer{'s' * (kinds != 1)}{right}"
