"""Runs in a small file, so that the page and the tutorial can show them without a model.

The file holds JSON and arrays: floats in half precision, integers in 32 bits. Importances keep 32 bits,
because figures mark exact ties.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pine_engine.attention.trace import Alternative, TokenRange, TokenWeights, Trace
from pine_engine.engine.events import Answer, RunResult
from pine_engine.prompts.layout import TokenLayout
from viz.drawing.identity import Segment
from viz.figures.answer_tokens import AnswerTokens
from viz.page.answers.answering import FinishedRun, TriedOrder

RECORDED = Path(__file__).parents[3] / "assets" / "recorded"
TUTORIAL_RECORDING = RECORDED / "tutorial.npz"

_KEPT_WHOLE = ("document_importance", "suffix_importance")  # float fields that are not rounded


@dataclass(frozen=True)
class Recording:
    """Recorded run with its shuffle test."""

    example: str  # name of the example
    question: str
    run: FinishedRun  # run with the input order; all other orders are in `tried`
    exchanged: FinishedRun
    """PINE run with documents 1 and 3 exchanged, traced to the end of the question, without attention."""


_RECORDS: dict[str, type[Any]] = {
    record.__name__: record
    for record in (
        *(Recording, FinishedRun, RunResult, Answer, TokenLayout),
        *(Trace, TokenWeights, TokenRange, Alternative, AnswerTokens, TriedOrder, Segment),
    )
}
"""Record types that a file may contain, by name."""


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
    """Return the recording that comes with the app; `make record` updates it."""
    return read_recording(TUTORIAL_RECORDING)


def _stored_dtype(array: NDArray[Any], field: str) -> str:
    if not np.issubdtype(array.dtype, np.floating):
        return "int32"
    return "float32" if field in _KEPT_WHOLE else "float16"


def _plain(value: Any, field: str, arrays: dict[str, NDArray[Any]]) -> Any:
    """Convert a value to JSON, and add its arrays to `arrays`; `field` is its name in a record."""
    if is_dataclass(value):
        name = type(value).__name__
        assert name in _RECORDS, f"Unsupported record type: {name}."
        contents = {part.name: _plain(getattr(value, part.name), part.name, arrays) for part in fields(value)}
        return {"record": name, "of": contents}
    if isinstance(value, np.ndarray):
        name = f"array_{len(arrays)}"
        arrays[name] = value.astype(_stored_dtype(value, field))
        return {"array": name, "dtype": value.dtype.name}
    if isinstance(value, Mapping):
        return {"by_name": {name: _plain(part, field, arrays) for name, part in value.items()}}
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
        case {"by_name": contents}:
            return {name: _record(value, arrays) for name, value in contents.items()}
        case list():
            return tuple(_record(value, arrays) for value in plain)
        case _:
            return plain


def question_of(run: FinishedRun, recording: Recording) -> str:
    """Return the question of a run; the recorded one has no form."""
    return run.form.question if run.form else recording.question
