"""Recorded answers to the examples, run of the tutorial and base rates, which are shown without a model.

A run is in a file of JSON and arrays: floats in half precision, integers in 32 bits. Importances keep 32
bits, because figures mark exact ties. `make record` updates these files, and `python -m tools.base_rate` that
of the base rates, the shares of correct answers over unselected questions.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from pine_engine.attention.trace import Alternative, TokenRange, TokenWeights, Trace
from pine_engine.engine.events import Answer, RunResult
from pine_engine.methods.table import METHODS
from pine_engine.prompts.layout import TokenLayout
from pine_engine.rows.untrusted_json import TupleInput
from viz.cards.answers import AnswerCard
from viz.drawing.identity import Segment
from viz.drawing.markup import render
from viz.figures.answer_origin import AnswerOrigin
from viz.figures.answer_tokens import AnswerTokens, HeadAttention
from viz.page.answers.run import OrderAnswers, Run, Shown
from viz.page.answers.shared import SharedAnswers, SharedResults
from viz.page.form.documents import Entry
from viz.page.form.examples import FormExample, example_of
from viz.page.form.form import Form

RECORDED = Path(__file__).parents[3] / "assets" / "recorded"
ANSWERS_FILE = RECORDED / "answers.json"
TUTORIAL_RECORDING = RECORDED / "tutorial.npz"
BASE_RATE_FILE = RECORDED / "base_rate.json"

# Answers to the examples


class RecordedAnswer(SharedAnswers, frozen=True):
    """Answers of one method."""

    num_tokens: int  # length of the answer in the input order, in tokens


class RecordedAnswers(SharedResults, frozen=True):
    """Answers to one example; the first order is the input order."""

    fingerprint: str  # of the example
    recorded: str  # date and model
    answers: TupleInput[RecordedAnswer]


_ANSWERS = TypeAdapter(dict[str, RecordedAnswers])


def fingerprint(example: FormExample) -> str:
    """Return a hash of all inputs of the model in an example."""
    inputs = example.model_dump_json(include={"task", "question", "documents", "instruction"})
    return sha256(inputs.encode("utf-8")).hexdigest()


def write_answers(recorded: Mapping[str, RecordedAnswers], file: Path) -> None:
    """Write the answers to the examples of these names."""
    file.write_bytes(_ANSWERS.dump_json(dict(recorded), indent=1) + b"\n")


@cache
def recorded_answers(file: Path = ANSWERS_FILE) -> Mapping[str, RecordedAnswers]:
    """Return the answers in a file by example name."""
    return _ANSWERS.validate_json(file.read_bytes())


def recorded_of(form: Form) -> Shown:
    """Return the recorded answers if the form is an example, in any order, else cards that wait.

    Recorded answers have the form of the example, with its order.
    """
    example = example_of(form)
    recorded = recorded_answers().get(example.name) if example else None
    if example is None or recorded is None or recorded.fingerprint != fingerprint(example):
        return Shown(form, tuple(map(AnswerCard, form.methods)))
    answers = {answer.method: answer for answer in recorded.answers}
    cards = (_card(answers[name]) if name in answers else AnswerCard(name) for name in form.methods)
    return Shown(example.form(form.methods), tuple(cards), earlier=recorded.by_order(recorded.recorded))


def _card(answer: RecordedAnswer) -> AnswerCard:
    return AnswerCard(
        answer.method,
        state="finished",
        text=answer.texts[0],
        num_tokens=answer.num_tokens,
        finish_reason="length" if answer.cut_off[0] else "stop",
        recorded="precomputed",
    )


# The run of the tutorial


@dataclass(frozen=True)
class Recording:
    """Recorded run with its shuffle test."""

    example: str  # name of the example
    run: Run  # run with the input order and all other orders
    exchanged: Run
    """PINE run with documents 1 and 3 exchanged, traced to the end of the question, without attention."""


_KEPT_WHOLE = ("document_importance", "suffix_importance")  # float fields that are not rounded


def write_recording(recording: Recording, file: Path) -> None:
    """Write a compressed file; the recording must have no logits."""
    arrays: dict[str, NDArray[Any]] = {}
    records = json.dumps(_plain(recording, "", arrays), ensure_ascii=False, separators=(",", ":"))
    as_bytes = np.frombuffer(records.encode("utf-8"), dtype=np.uint8)
    np.savez_compressed(file, allow_pickle=False, records=as_bytes, **arrays)


def read_recording(file: Path) -> Recording:
    """Read a recording from a file written by `write_recording`."""
    with np.load(file, allow_pickle=False) as stored:
        arrays: dict[str, NDArray[Any]] = dict(stored)
    recording = _record(json.loads(arrays["records"].tobytes().decode("utf-8")), arrays)
    assert isinstance(recording, Recording)
    return recording


@cache
def tutorial_recording() -> Recording:
    """Return the recording that comes with the app."""
    return read_recording(TUTORIAL_RECORDING)


def _plain(value: Any, field: str, arrays: dict[str, NDArray[Any]]) -> Any:
    """Convert a value to JSON, and add its arrays to `arrays`; `field` is its name in a record."""
    if is_dataclass(value):
        name = type(value).__name__
        assert name in _RECORDS, f"Unsupported record type: {name}."
        named = [(part, getattr(value, part.name)) for part in fields(value)]
        contents = {
            part.name: _plain(one, part.name, arrays) for part, one in named if one is not part.default
        }
        return {"record": name, "of": contents}
    if isinstance(value, np.ndarray):
        name = f"array_{len(arrays)}"
        of_floats = "float32" if field in _KEPT_WHOLE else "float16"
        arrays[name] = value.astype(of_floats if np.issubdtype(value.dtype, np.floating) else "int32")
        return {"array": name, "dtype": value.dtype.name}
    if isinstance(value, Mapping):
        return {"by_key": [[key, _plain(part, field, arrays)] for key, part in value.items()]}
    if isinstance(value, tuple | list):
        return [_plain(part, field, arrays) for part in value]
    return value.item() if isinstance(value, np.generic) else value


def _record(plain: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """Convert JSON back to a record; every sequence becomes a tuple."""
    match plain:
        case {"record": name, "of": contents}:
            return _RECORDS[name](**{part: _record(value, arrays) for part, value in contents.items()})
        case {"array": name, "dtype": dtype}:
            return arrays[name].astype(dtype)
        case {"by_key": contents}:
            return {_record(key, arrays): _record(value, arrays) for key, value in contents}
        case list():
            return tuple(_record(value, arrays) for value in plain)
        case _:
            return plain


_RECORDS: dict[str, Any] = {
    record.__name__: record
    for record in (
        *(Recording, Run, OrderAnswers, AnswerOrigin, RunResult, Answer, TokenLayout, Form, Entry),
        *(Trace, TokenWeights, TokenRange, Alternative, AnswerTokens, HeadAttention, Segment),
    )
}
"""Records of a file by name."""


# Base rates


@cache
def base_rate() -> dict[str, Any]:
    """Return the percentages of all methods, and the setting of the evaluation; see `tools/base_rate.py`."""
    rate: dict[str, Any] = json.loads(BASE_RATE_FILE.read_bytes())
    return rate


def base_rate_sentence(task: str) -> str:
    """Return one sentence on vanilla and PINE; "" for another task than that of the base rate."""
    rate = base_rate()
    if task != rate["task"]:
        return ""
    correct = {row["method"]: row["correct"] for row in rate["methods"]}
    return (
        f"Over {rate['questions']} unselected questions, vanilla is correct in {correct['vanilla']:.0f}% of "
        f"all orders and PINE in {correct['pine']:.0f}%; PINE never changes."
    )


def base_rate_html() -> str:
    """Render the answers to "Is PINE always right?" and "Why not just sort the documents?"."""
    labels = {name: method.label for name, method in METHODS.items()}
    return render("base_rate.html", rate=base_rate(), labels=labels)
