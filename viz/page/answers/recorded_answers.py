"""Recorded answers to the examples, shown before a model is loaded."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path

import numpy as np
from pydantic import BaseModel, TypeAdapter

from viz.cards.answers import AnswerCard
from viz.cards.shuffle import InOrders
from viz.figures.positions_by_order import DocumentPositions
from viz.page.answers.cards import Shown, waiting_cards
from viz.page.answers.stale import Origin
from viz.page.form.examples import FormExample, example_of
from viz.page.form.form import Form

ANSWERS_FILE = Path(__file__).parents[3] / "assets" / "recorded" / "answers.json"


class RecordedAnswer(BaseModel, frozen=True, extra="forbid"):
    """Answer of one method."""

    method: str
    text: str
    num_tokens: int  # length in tokens
    finish_reason: str  # "stop" or "length"
    in_orders: tuple[str, ...]  # text in each order
    starts: tuple[tuple[int, ...], ...] = ()
    """First position of each document, in input order, for the last question token, in each order."""


class RecordedAnswers(BaseModel, frozen=True, extra="forbid"):
    """Answers to one example."""

    fingerprint: str  # of the example
    recorded: str  # date and model
    orders: tuple[tuple[int, ...], ...]  # document orders; the first is the input order
    answers: tuple[RecordedAnswer, ...]
    lengths: tuple[int, ...] = ()  # length of each document in tokens, in input order


_FILE = TypeAdapter(dict[str, RecordedAnswers])


def fingerprint(example: FormExample) -> str:
    """Return a hash of all inputs of the model in an example."""
    inputs = example.model_dump_json(include={"task", "question", "documents", "instruction"})
    return sha256(inputs.encode("utf-8")).hexdigest()


def write_answers(recorded: Mapping[str, RecordedAnswers], file: Path) -> None:
    """Write the answers to the examples of these names."""
    file.write_bytes(_FILE.dump_json(dict(recorded), indent=1) + b"\n")


@cache
def recorded_answers(file: Path = ANSWERS_FILE) -> Mapping[str, RecordedAnswers]:
    """Return the answers in a file by example name; `make record` updates the file of the app."""
    return _FILE.validate_json(file.read_bytes())


def recorded_of(form: Form) -> tuple[Shown, Origin | None]:
    """Return the recorded answers if the form is an example, in any order, else cards that wait.

    The origin has the order of the example, and is None for cards that wait.
    """
    cards = waiting_cards(form.methods)
    example = example_of(form)
    recorded = recorded_answers().get(example.name) if example else None
    if example is None or recorded is None or recorded.fingerprint != fingerprint(example):
        return Shown(cards, form.task), None
    answers = {answer.method: answer for answer in recorded.answers}
    shown = Shown(
        tuple(_answered(card, answers[card.method]) if card.method in answers else card for card in cards),
        form.task,
        recorded.recorded,
        InOrders(
            recorded.orders,
            {answer.method: answer.in_orders for answer in recorded.answers},
            positions=_positions(recorded),
            recorded=dict.fromkeys(recorded.orders, recorded.recorded),
        ),
        recorded.orders[0],
    )
    return shown, Origin(example.form(form.methods), recorded=True, is_for_all_orders=True)


def _positions(recorded: RecordedAnswers) -> tuple[DocumentPositions, ...]:
    lengths = np.array(recorded.lengths)
    return tuple(
        DocumentPositions(
            order, lengths, {answer.method: np.array(answer.starts[place]) for answer in recorded.answers}
        )
        for place, order in enumerate(recorded.orders)
    )


def _answered(card: AnswerCard, answer: RecordedAnswer) -> AnswerCard:
    return replace(
        card,
        state="finished",
        text=answer.text,
        num_tokens=answer.num_tokens,
        finish_reason=answer.finish_reason,
        recorded=True,
    )
