"""Recorded run of the tutorial, with its traces, in a file of JSON and arrays; `make record` updates it.

Floats have half precision and integers 32 bits. Importances keep 32 bits, because figures mark exact ties.
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
from viz.figures.answer_origin import AnswerOrigin
from viz.figures.answer_tokens import AnswerTokens, HeadAttention
from viz.page.answers.order_answers import OrderAnswers
from viz.page.answers.recordings import RECORDED
from viz.page.answers.run import Run
from viz.page.form.documents import Entry
from viz.page.form.form import Form

TUTORIAL_RECORDING = RECORDED / "tutorial.npz"


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
