"""Runs kept in a small file, so that the page and the lesson can show them without a model.

A file holds the records as JSON beside their arrays: decimals at half precision, whole numbers in 32 bits.
Importances keep their 32 bits, because pictures flag documents whose importance is exactly equal and rounding
would make some equal.
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
"""Fields whose decimals are not rounded."""


@dataclass(frozen=True)
class Recording:
    """A run, and what became of it when its documents were shuffled."""

    example: str
    """Name of the example it is a run of."""

    question: str
    run: FinishedRun
    """The documents as entered, all other orders among its `tried`."""

    exchanged: FinishedRun
    """PINE's run with the first and the third document exchanged, traced to the end of the question only and
    without attention.
    """


_RECORDS: dict[str, type[Any]] = {
    record.__name__: record
    for record in (
        *(Recording, FinishedRun, RunResult, Answer, TokenLayout),
        *(Trace, TokenWeights, TokenRange, Alternative, AnswerTokens, TriedOrder, Segment),
    )
}
"""What may stand in a file, by name."""


def write_recording(recording: Recording, file: Path) -> None:
    """Writes a compressed file; logits, which no picture needs, must not have been kept."""
    arrays = _Arrays()
    records = json.dumps(_plain(recording, "", arrays), ensure_ascii=False, separators=(",", ":"))
    as_bytes = np.frombuffer(records.encode("utf-8"), dtype=np.uint8)
    np.savez_compressed(file, allow_pickle=False, records=as_bytes, **arrays.joined())


def read_recording(file: Path) -> Recording:
    """The recording in a file that `write_recording` wrote."""
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
    """The recording that comes with the app, `make record` makes it anew."""
    return read_recording(LESSON_RECORDING)


class _Arrays:
    """Arrays laid end to end, all of one number format as one: many small ones would be mostly names.

    The first bytes of all numbers stand together, then the second ones: first bytes are much alike,
    which makes the file a tenth smaller.
    """

    def __init__(self) -> None:
        self._parts: dict[str, list[NDArray[Any]]] = {}
        self._sizes: dict[str, int] = {}

    def add(self, array: NDArray[Any], field: str) -> dict[str, Any]:
        """Where the array stands now, as plain data."""
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
        """The bytes of all numbers of each format, uint8 (bytes of a number, numbers)."""
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
    """The value as JSON has it. field: where in a record it stands."""
    if is_dataclass(value):
        name = type(value).__name__
        assert name in _RECORDS, f"{name} is not among the records that a file may have"
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
    """What _plain was given; every sequence is a tuple."""
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
