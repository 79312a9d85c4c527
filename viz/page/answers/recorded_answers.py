"""Recorded answers to the examples, shown before a model is loaded."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict, TypeAdapter

from pine_engine.prompts.tasks import TASKS
from viz.cards.answers import AnswerCard
from viz.cards.shuffle import InOrders
from viz.figures.positions_by_order import DocumentPositions
from viz.page.answers.cards import Shown, waiting_cards
from viz.page.answers.outdated import Origin
from viz.page.form.documents import entries_from
from viz.page.form.examples import FormExample, load_examples
from viz.page.form.form import MAX_NEW_TOKENS, Form

ANSWERS_FILE = Path(__file__).parents[3] / "assets" / "recorded" / "answers.json"


class _RecordedModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RecordedAnswer(_RecordedModel):
    """Answer of one method."""

    method: str
    text: str
    num_tokens: int
    """Length in tokens."""

    finish_reason: str
    """"stop" or "length"."""

    in_orders: tuple[str, ...]
    """Text in each order."""

    starts: tuple[tuple[int, ...], ...] = ()
    """First position of each document, in input order, for the last question token, in each order."""


class RecordedAnswers(_RecordedModel):
    """Answers to one example."""

    asked: str
    """`fingerprint` of the example."""

    recorded: str
    """Date and model."""

    orders: tuple[tuple[int, ...], ...]
    """Document orders; the first is the input order."""

    answers: tuple[RecordedAnswer, ...]
    lengths: tuple[int, ...] = ()
    """Length of each document in tokens, in input order."""


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


def first_shown(example: FormExample, methods: Sequence[str]) -> Shown:
    """Return the initial cards of an example: recorded answers, or waiting cards."""
    cards = waiting_cards(methods)
    recorded = recorded_answers().get(example.name)
    if recorded is None or recorded.asked != fingerprint(example):
        return Shown(cards, example.task)
    answers = {answer.method: answer for answer in recorded.answers}
    return Shown(
        tuple(_answered(card, answers[card.method]) if card.method in answers else card for card in cards),
        example.task,
        recorded.recorded,
        InOrders(
            recorded.orders,
            {answer.method: answer.in_orders for answer in recorded.answers},
            positions=_positions(recorded),
        ),
        recorded.orders[0],
    )


def _positions(recorded: RecordedAnswers) -> tuple[DocumentPositions, ...]:
    lengths = np.array(recorded.lengths)
    return tuple(
        DocumentPositions(
            order, lengths, {answer.method: np.array(answer.starts[place]) for answer in recorded.answers}
        )
        for place, order in enumerate(recorded.orders)
    )


def recorded_for(example: FormExample, shown: Shown) -> Origin | None:
    """Return the origin of the cards of an example; None without recorded answers."""
    if not shown.recorded:
        return None
    entries = entries_from([(document.title, document.text) for document in example.documents])
    methods = tuple(card.method for card in shown.cards)
    form = Form(example.task, example.question, example.instruction, methods, MAX_NEW_TOKENS, entries)
    return Origin(form, recorded=True, is_for_all_orders=True)


def recorded_of(form: Form) -> tuple[Shown, Origin | None]:
    """Return the recorded answers if the form is an example, in any order, else cards that wait."""
    documents = [(entry.title, entry.text) for entry in sorted(form.entries, key=lambda one: one.identity)]
    for example in load_examples():
        instructions = ("", example.instruction or TASKS[example.task].instruction)
        if (
            (form.task, form.question) == (example.task, example.question)
            and form.instruction in instructions
            and documents == [(document.title, document.text) for document in example.documents]
        ):
            shown = first_shown(example, form.methods)
            return shown, recorded_for(example, shown)
    return Shown(waiting_cards(form.methods), form.task), None


def _answered(card: AnswerCard, answer: RecordedAnswer) -> AnswerCard:
    return replace(
        card,
        state="finished",
        text=answer.text,
        num_tokens=answer.num_tokens,
        finish_reason=answer.finish_reason,
        recorded=True,
    )
