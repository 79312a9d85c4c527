"""Worksheet for a class: experiments with a link, what to expect of recorded answers, and a question.

assets/worksheet.js saves the worksheet as Markdown and prints it.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from pine_engine.methods.table import METHODS, compared_pair, get_methods
from pine_engine.prompts.tasks import document_letter
from viz.cards import tutorial as cards
from viz.drawing.identity import order_name
from viz.drawing.markup import render
from viz.page.answers.answering import is_correct_by
from viz.page.answers.record import MethodAnswers, RunRecord
from viz.page.answers.recordings import recorded_answers
from viz.page.form.examples import FormExample, load_examples
from viz.page.links import example_link


@dataclass(frozen=True)
class Experiment:
    """One experiment with a recorded example."""

    heading: str
    task: str
    link: str  # session of the address that opens the example
    expected: tuple[str, ...]  # one line for each method
    question: str


@cache
def worksheet_html() -> str:
    """Render the worksheet for the page."""
    return render("worksheet.html", experiments=[_experiment(**text) for text in cards.CONTENT["worksheet"]])


def _experiment(*, example: str, slots: Sequence[int], switches: bool, **texts: Any) -> Experiment:
    """Return an experiment with a recorded example: about all orders, or its documents switched off."""
    shipped, record = {one.name: one for one in load_examples()}[example], recorded_answers()[example]
    order = tuple(slots)
    expected = []
    for answers in _compared(record):
        label = METHODS[answers.method].label
        if switches:
            expected.append(
                f"{label}, order {order_name(order)}: {_switched(answers, record.orders.index(order))}"
            )
        else:
            expected.append(f"{label}: {_in_all_orders(answers, shipped)}")
    return Experiment(link=example_link(shipped, order), expected=tuple(expected), **texts)


def _compared(record: RunRecord) -> list[MethodAnswers]:
    """Return the answers of the methods that the page compares."""
    answers = {one.method: one for one in record.answers}
    return [answers[method.name] for method in compared_pair(get_methods(answers))]


def _in_all_orders(answers: MethodAnswers, example: FormExample) -> str:
    """Return the different answers with the number of their orders, and how many are correct."""
    counts, num_orders = Counter(answers.texts), len(answers.texts)
    is_correct = is_correct_by(example.form(()).row, example.answers)
    correct = f", correct in {sum(map(is_correct, answers.texts))}" if is_correct else ""
    texts = "; ".join(f"“{text}” in {count}" for text, count in counts.most_common())
    return f"{len(counts)} answer{'s' * (len(counts) != 1)} in {num_orders} orders{correct}: {texts}."


def _switched(answers: MethodAnswers, place: int) -> str:
    """Return the answer in an order, and those without each document."""
    without = [
        f"without {document_letter(document)}: “{text}”"
        for document, text in enumerate(answers.texts_without[place])
    ]
    return "; ".join([f"“{answers.texts[place]}”", *without])
