"""Verdicts on two answers that a judge has given before: a file of them as records, without a model.

A row has a pair, an order, a verdict, and optionally the judge and a human label. A verdict A or B, 1 or 2
names the first or second answer as shown. A verdict with a noun, such as model_a, names an answer as
stored, and so does each label.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pine_engine.errors import InputError
from pine_engine.lab.evaluation import bootstrap
from pine_engine.lab.evaluation.estimates import estimate_tasks
from pine_engine.lab.evaluation.grid import Grid, named_document
from pine_engine.lab.evaluation.intervals import Estimate, Floats
from pine_engine.lab.evaluation.record import Record
from pine_engine.prompts.scoring import TIE
from pine_engine.rows.files import parse_objects

COLUMNS = {
    "pair": ("pair", "pair_id", "question_id", "example", "id"),
    "order": ("order", "position", "swapped", "is_swapped"),
    "verdict": ("verdict", "winner", "judgment", "judgement", "choice", "preference"),
    "label": ("label", "human", "human_label", "human_winner", "gold"),
    "judge": ("judge", "judge_model", "model"),
}
"""Names of the columns, the first of which a row has counts."""

STORED = ("as-is", "original", "ab", "a-b", "a_b", "forward", "0", "false", "no")
SWAPPED = ("swapped", "ba", "b-a", "b_a", "reversed", "flipped", "1", "true", "yes")
"""Values of the order in lower case."""

_VERDICT = re.compile(r"(?P<noun>(?:model|assistant|answer|response)[ _-]?)?(?P<letter>[ab12])")
_TIES = ("c", "draw", "equal", "both bad")
_NO_JUDGE = "judge"


class Verdict(NamedTuple):
    """A row. verdict: stored answer, TIE, or None for another text. label: likewise, None if absent."""

    pair: str
    judge: str
    order: str
    text: str
    verdict: int | str | None
    label: int | str | None


@dataclass(frozen=True)
class VerdictFile:
    """Verdicts of a file: its name, estimates with kappa, and the numbers of texts that are no verdict."""

    name: str
    grid: Grid
    unreadable: Mapping[str, int]


def read_verdicts(path: Path) -> VerdictFile:
    """Return the verdicts of a CSV, JSON or JSONL file with their estimates. Raises InputError."""
    verdicts = [verdict for _, verdict in parse_objects(path, _parse)]
    if all(one.verdict is None for one in verdicts):
        raise InputError(f"{path} has no verdict: expected A, B or tie in the column verdict")
    seen: set[tuple[str, ...]] = set()
    labels: dict[str, int | str] = {}
    for one in verdicts:
        key = (one.pair, one.judge, one.order)
        if key in seen:
            raise InputError(f"{path} has two verdicts of {one.judge} on {one.pair}, {one.order}; keep one")
        seen.add(key)
        if one.label is not None and labels.setdefault(one.pair, one.label) != one.label:
            raise InputError(f"{path} has two labels of {one.pair}; a label names an answer as stored")
    has_tie = TIE in labels.values() or any(one.verdict == TIE for one in verdicts)
    records = [_record(one, labels.get(one.pair), "judge_tie" if has_tie else "judge") for one in verdicts]
    (grid,) = estimate_tasks(records)
    kappas = [kappa for method in grid.methods if (kappa := _kappa(grid, method, labels))]
    unreadable = Counter(one.text for one in verdicts if one.verdict is None)
    return VerdictFile(path.name, replace(grid, estimates=(*grid.estimates, *kappas)), unreadable)


def _parse(row: dict[str, Any]) -> Verdict:
    cells = dict(_cells(row))
    if missing := [name for name in ("pair", "order", "verdict") if name not in cells]:
        expected = " or ".join(COLUMNS[missing[0]])
        raise InputError(f"no column {missing[0]}: got {', '.join(row):.200}, expected {expected}")
    order = cells["order"].lower()
    if order not in STORED and order not in SWAPPED:
        expected = f"{', '.join(STORED[:4])}, {', '.join(SWAPPED[:3])}, or 0 and 1"
        raise InputError(f"unknown order: got {cells['order']!r:.60}, expected {expected}")
    is_swapped = order in SWAPPED
    return Verdict(
        pair=cells["pair"],
        judge=cells.get("judge") or _NO_JUDGE,
        order="swapped" if is_swapped else "as-is",
        text=cells["verdict"],
        verdict=_named(cells["verdict"], is_swapped=is_swapped),
        label=_label(cells.get("label", "")),
    )


def _cells(row: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the text of each known column."""
    lower = {key.strip().lower(): value for key, value in row.items()}
    for name, columns in COLUMNS.items():
        if found := [column for column in columns if column in lower]:
            value = lower[found[0]]
            yield name, "" if value is None else str(value).strip()


def _named(text: str, *, is_swapped: bool) -> int | str | None:
    """Return the stored answer that a text names, TIE, or None."""
    text = text.strip("[]() .").lower()
    if text in _TIES or text.startswith("tie"):  # "tie (bothbad)" of Chatbot Arena
        return TIE
    if (found := _VERDICT.fullmatch(text)) is None:
        return None
    place = int(found["letter"] in "b2")
    return 1 - place if is_swapped and not found["noun"] else place


def _label(text: str) -> int | str | None:
    label = _named(text, is_swapped=False)
    if text and label is None:
        raise InputError(f"unknown label: got {text!r:.60}, expected A, B or tie")
    return label


def _record(one: Verdict, label: int | str | None, task: str) -> Record:
    entered = (1, 0) if one.order == "swapped" else (0, 1)

    def letter(answer: int | str) -> str:
        return TIE if isinstance(answer, str) else "AB"[entered.index(answer)]

    parsed = None if one.verdict is None else letter(one.verdict)
    return Record(
        example=one.pair,
        task=task,
        method=one.judge,
        order_name=one.order,
        input_order=entered,
        permutation=(0, 1),
        gold_slot=entered.index(label) if isinstance(label, int) else None,
        num_documents=2,
        answers=() if label is None else (letter(label),),
        text=one.text,
        parsed=parsed,
        score=None if label is None or parsed is None else float(parsed == letter(label)),
        scoring="verdict",
    )


def _kappa(grid: Grid, judge: str, labels: dict[str, int | str]) -> Estimate | None:
    """Return Cohen's kappa of verdicts and labels over all orders, its interval over pairs."""
    classes: list[int | str | None] = [0, 1, TIE]
    counts: Floats = np.zeros((len(grid.examples), 9))
    for row, column in enumerate(grid.columns[judge]):
        for record in column.values():
            if record.parsed is not None and record.example in labels:
                verdict = TIE if record.parsed == TIE else named_document(record, "generated")
                counts[row, 3 * classes.index(verdict) + classes.index(labels[record.example])] += 1
    known = counts.any(axis=1)
    estimate = bootstrap.statistic(counts[known], cohens_kappa, grid.resamples[:, known])
    return estimate and estimate._replace(task=grid.task, method=judge, metric="generated", group="kappa")


def cohens_kappa(counts: Floats) -> Floats:
    """Return Cohen's kappa of 3 x 3 counts, NaN if both raters always name one class.

    Source: Cohen 1960, "A coefficient of agreement for nominal scales".

    Shape:
        counts: (..., 9). Returns: (...).
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = (counts / counts.sum(axis=-1, keepdims=True)).reshape(*counts.shape[:-1], 3, 3)
        agreed = np.trace(shares, axis1=-2, axis2=-1)
        by_chance = (shares.sum(axis=-1) * shares.sum(axis=-2)).sum(axis=-1)
        kappa: Floats = np.where(by_chance < 1 - 1e-12, (agreed - by_chance) / (1 - by_chance), np.nan)
    return kappa
