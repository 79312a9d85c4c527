"""Recorded answers to the examples, which are shown without a model; `make record` updates them."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from pydantic import TypeAdapter

from viz.cards.answers import AnswerCard
from viz.page.answers.record import MethodAnswers, RunRecord
from viz.page.answers.shown import Shown
from viz.page.form.examples import FormExample, example_of
from viz.page.form.form import Form

RECORDED = Path(__file__).parents[3] / "assets" / "recorded"
ANSWERS_FILE = RECORDED / "answers.json"
MAX_NEW_TOKENS = 24  # of a recorded answer; a run has the maximum of the form, which can be higher

_ANSWERS = TypeAdapter(dict[str, RunRecord])


def write_answers(recorded: Mapping[str, RunRecord], file: Path) -> None:
    """Write the answers to the examples of these names."""
    file.write_bytes(_ANSWERS.dump_json(dict(recorded), indent=1, exclude_defaults=True) + b"\n")


@cache
def recorded_answers(file: Path = ANSWERS_FILE) -> Mapping[str, RunRecord]:
    """Return the answers in a file by example name."""
    return _ANSWERS.validate_json(file.read_bytes())


def is_current(record: RunRecord, example: FormExample) -> bool:
    """Check whether an example is still the one that was recorded."""
    return record.form == example.form(record.methods, record.max_new_tokens)


def recorded_of(form: Form) -> Shown:
    """Return the recorded answers if the form is an example, in any order, else cards that wait.

    Recorded answers have the form of the example, with its order.
    """
    example = example_of(form)
    record = recorded_answers().get(example.name) if example else None
    if example is None or record is None or not record.orders or not is_current(record, example):
        return Shown(form, tuple(map(AnswerCard, form.methods)))
    answers = {answer.method: answer for answer in record.answers}
    cards = (_card(answers[name]) if name in answers else AnswerCard(name) for name in form.methods)
    return Shown(example.form(form.methods), tuple(cards), earlier=record.by_order())


def _card(answer: MethodAnswers) -> AnswerCard:
    """Return the card of an answer in the order of the example, which is the first."""
    return AnswerCard(
        answer.method,
        state="finished",
        text=answer.texts[0],
        num_tokens=answer.num_tokens,
        finish_reason="length" if answer.cut_off and answer.cut_off[0] else "stop",
        source="recorded",
    )
