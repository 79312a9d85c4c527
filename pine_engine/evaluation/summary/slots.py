"""What the slot of the document with the answer changes, where nothing else does.

A value stands for a slot if it can be compared with those beside it: every example has one in each slot that
is shown, and in all of them the other documents in the same order. So an order that puts the document into
another slot in each example, such as `as-is`, adds to no slot, and no shuffle does. Where documents bear
letters, these go with the places, as when a user enters the documents elsewhere.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from pine_engine.evaluation.document_orders import Places, is_drawn, labels_go_with_places
from pine_engine.evaluation.records import Record
from pine_engine.evaluation.summary.grid import Column
from pine_engine.evaluation.summary.intervals import Flags, Floats
from pine_engine.evaluation.summary.verdicts import Kind, is_read, number

ReadValue = tuple[float, bool]
"""A value, and whether the answer that it scores can be read."""

Others = dict[Places, dict[int, ReadValue]]
"""Of one example: by the order of its other documents, what it has in each slot."""


@dataclass(frozen=True)
class BySlot:
    """The examples of one size. slots: (s,), counted from 0.

    values: (n, s), a row for each example of any size; shuffled: (n,), its mean over its shuffles. NaN for
    those of another size, without such a document, or without a shuffle. read, shuffles_read: of the
    same shapes, whether any of the answers behind such a value can be read.
    """

    num_documents: int
    slots: tuple[int, ...]
    values: Floats
    shuffled: Floats
    read: Flags
    shuffles_read: Flags


def group_by_slot(columns: Sequence[Column], kind: Kind) -> list[BySlot]:
    """For each number of documents of which slots can be compared, ascending. columns: of one method."""
    of_size: dict[int, dict[int, Others]] = {}
    for row, column in enumerate(columns):
        if others := _by_others(column, kind):
            size = next(iter(column.values())).num_documents
            of_size.setdefault(size, {})[row] = others
    tables = []
    for size, rows in sorted(of_size.items()):
        # Of each example the order of the others with which most slots were measured.
        most = [max(others.values(), key=len) for others in rows.values()]
        slots = tuple(sorted(set.intersection(*map(set, most))))
        if not slots:
            continue
        values, shuffled = np.full((len(columns), len(slots)), np.nan), np.full(len(columns), np.nan)
        read, shuffles_read = np.zeros(values.shape, dtype=bool), np.zeros(shuffled.shape, dtype=bool)
        for row, others in rows.items():
            kept = [of_slot for of_slot in others.values() if of_slot.keys() >= set(slots)]
            means = [_mean(of_slot[slot] for of_slot in kept) for slot in slots]
            values[row], read[row] = zip(*means, strict=True)
            shuffled[row], shuffles_read[row] = _mean(_shuffles(columns[row], kind))
        tables.append(BySlot(size, slots, values, shuffled, read, shuffles_read))
    return tables


def is_flat(in_slots: Iterable[float], shuffled: float) -> bool:
    """Whether a method has the same in every slot and on shuffled documents, but for rounding."""
    return all(math.isclose(value, shuffled, rel_tol=1e-9, abs_tol=1e-12) for value in in_slots)


def by_gold_slot(column: Column) -> dict[int, Record]:
    """Of one example, a record with the document with the answer in each slot, in orders that are not drawn.

    Letters go with the places. Of several orders of the other documents the first one that was measured.
    """
    found: dict[int, Record] = {}
    for record in _fixed(column):
        if record.gold_slot is not None:
            found.setdefault(record.gold_slot, record)
    return found


def _by_others(column: Column, kind: Kind) -> Others:
    found: Others = {}
    for record in _fixed(column):
        value, gold = _read_value(record, kind), record.gold_slot
        if gold is not None and value is not None:
            others = tuple(record.entered[place] for slot, place in enumerate(record.order) if slot != gold)
            found.setdefault(others, {}).setdefault(gold, value)
    return found


def _fixed(column: Column) -> list[Record]:
    """The records whose order is not drawn, and whose letters go with the places."""
    return [
        record
        for name, record in column.items()
        if not is_drawn(name) and labels_go_with_places(record.task, record.order)
    ]


def _shuffles(column: Column, kind: Kind) -> list[ReadValue]:
    return [
        value for name in column if is_drawn(name) and (value := _read_value(column[name], kind)) is not None
    ]


def _read_value(record: Record, kind: Kind) -> ReadValue | None:
    value = number(record, kind)
    return None if value is None else (value, is_read(record, kind))


def _mean(found: Iterable[ReadValue]) -> ReadValue:
    """Their mean, and whether any can be read; NaN if there are none."""
    values = list(found)
    mean = fmean(value for value, _ in values) if values else np.nan
    return mean, any(read for _, read in values)
