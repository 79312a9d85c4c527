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
from viz.page.answers.answer_records import TriedOrder
from viz.page.answers.answering import FinishedRun

RECORDED = Path(__file__).parents[3] / "assets" / "recorded"
LESSON_RECORDING = RECORDED / "lesson.npz"

_KEPT_WHOLE = ("document_importance", "suffix_importance")
"""Float fields that are not rounded."""


@dataclass(frozen=True)
class Recording:
    """Recorded run with its shuffle test."""

    example: str
    """Name of the example."""

    question: str
    run: FinishedRun
    """Run with the input order; all other orders are in `tried`."""

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
    arrays = _Arrays()
    records = json.dumps(_plain(recording, "", arrays), ensure_ascii=False, separators=(",", ":"))
    as_bytes = np.frombuffer(records.encode("utf-8"), dtype=np.uint8)
    np.savez_compressed(file, allow_pickle=False, records=as_bytes, **arrays.joined())


def read_recording(file: Path) -> Recording:
    """Read a recording from a file written by `write_recording`."""
    with np.load(file, allow_pickle=False) as stored:
        arrays = {
            name: np.ascontiguousarray(stored[name].T).view(name).reshape(-1)
            for name in stored.files
            if name != "records"
        }
        plain = json.loads(stored["records"].tobytes().decode("utf-8"))
    recording = _record(plain, arrays)
    assert isinstance(recording, Recording)
    return recording


@cache
def lesson_recording() -> Recording:
    """Return the recording that comes with the app; `make record` updates it."""
    return read_recording(LESSON_RECORDING)


class _Arrays:
    """Concatenated arrays, one buffer per dtype, which saves headers.

    Bytes are grouped by significance, because high bytes repeat: the file is ten times smaller.
    """

    def __init__(self) -> None:
        self._parts: dict[str, list[NDArray[Any]]] = {}
        self._sizes: dict[str, int] = {}

    def add(self, array: NDArray[Any], field: str) -> dict[str, Any]:
        """Append the array and return its location as plain data."""
        stored_as = _stored_format(array, field)
        start = self._sizes.get(stored_as, 0)
        self._parts.setdefault(stored_as, []).append(array.astype(stored_as).reshape(-1))
        self._sizes[stored_as] = start + array.size
        return {
            "array": stored_as,
            "start": start,
            "shape": list(array.shape),
            "format": array.dtype.name,
        }

    def joined(self) -> dict[str, NDArray[Any]]:
        """Return the bytes of all numbers of each dtype, uint8 (bytes of a number, numbers)."""
        joined = {stored_as: np.concatenate(parts) for stored_as, parts in self._parts.items()}
        return {
            stored_as: np.ascontiguousarray(array.view(np.uint8).reshape(-1, array.itemsize).T)
            for stored_as, array in joined.items()
        }


def _stored_format(array: NDArray[Any], field: str) -> str:
    if not np.issubdtype(array.dtype, np.floating):
        return "int32"
    return "float32" if field in _KEPT_WHOLE else "float16"


def _plain(value: Any, field: str, arrays: _Arrays) -> Any:
    """Convert a value to JSON; `field` is its name in a record."""
    if is_dataclass(value):
        name = type(value).__name__
        assert name in _RECORDS, f"Unsupported record type: {name}."
        contents = {part.name: _plain(getattr(value, part.name), part.name, arrays) for part in fields(value)}
        return {"record": name, "of": contents}
    if isinstance(value, np.ndarray):
        return arrays.add(value, field)
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
        case {"array": stored_as, "start": start, "shape": shape, "format": number_format}:
            array = arrays[stored_as][start : start + int(np.prod(shape))]
            return array.reshape(shape).astype(number_format)
        case {"by_name": contents}:
            return {name: _record(value, arrays) for name, value in contents.items()}
        case list():
            return tuple(_record(value, arrays) for value in plain)
        case _:
            return plain
