"""Scores by slot of the gold document, where nothing but the slot differs.

A score counts for a slot if it can be compared with the scores of the other slots: each example has a score
in each slot shown, with its other documents in one order. So an order that moves the gold document to another
slot in each example, such as `as-is`, counts for no slot, and neither does a shuffle. Letters of documents
belong to the places, as when a user enters the documents in another order.
"""

import math
from collections.abc import Iterable, Sequence
from statistics import fmean

from pine_engine.evaluation.answers import Metric, is_parsed, score_of
from pine_engine.evaluation.document_orders import Places, is_drawn, labels_follow_slots
from pine_engine.evaluation.grid import Column
from pine_engine.evaluation.records import Record

ParsedScore = tuple[float, bool]
"""A score, and True if its answer can be parsed."""

MISSING: ParsedScore = (math.nan, False)


def group_by_slot(
    columns: Sequence[Column], metric: Metric
) -> dict[int, dict[int | None, list[ParsedScore]]]:
    """Return the score of each example by number of documents and slot from 0; None: mean over shuffles.

    columns: records of one method. Examples of another number of documents have MISSING.
    """
    of_size: dict[int, dict[int, dict[Places, dict[int, ParsedScore]]]] = {}
    for row, column in enumerate(columns):
        if found := _by_order_of_others(column, metric):
            size = next(iter(column.values())).num_documents
            of_size.setdefault(size, {})[row] = found
    tables = {}
    for size, rows in sorted(of_size.items()):
        # For each example the order of the other documents with which most slots were measured.
        longest = [max(orders.values(), key=len) for orders in rows.values()]
        slots = sorted(set.intersection(*map(set, longest)))
        table = {slot: [MISSING] * len(columns) for slot in (*slots, None)}
        for row, orders in rows.items():
            complete = [of_slot for of_slot in orders.values() if of_slot.keys() >= set(slots)]
            for slot in slots:
                table[slot][row] = _mean([of_slot[slot] for of_slot in complete])
            drawn = [record for name, record in columns[row].items() if is_drawn(name)]
            table[None][row] = _mean(_scores(drawn, metric))
        if slots:
            tables[size] = table
    return tables


def is_flat(in_slots: Iterable[float], shuffled: float) -> bool:
    """Return True if the scores in all slots equal the shuffled score, up to rounding."""
    return all(math.isclose(value, shuffled, rel_tol=1e-9, abs_tol=1e-12) for value in in_slots)


def by_gold_slot(column: Column) -> dict[int, Record]:
    """Return a record of one example for each slot of the gold document, without shuffles.

    Of several orders of the other documents the first measured order counts.
    """
    found: dict[int, Record] = {}
    for record in _not_drawn(column):
        if record.gold_slot is not None:
            found.setdefault(record.gold_slot, record)
    return found


def _by_order_of_others(column: Column, metric: Metric) -> dict[Places, dict[int, ParsedScore]]:
    """Return the scores of one example by the order of its other documents, then by slot."""
    found: dict[Places, dict[int, ParsedScore]] = {}
    for record in _not_drawn(column):
        gold = record.gold_slot
        if gold is None:
            continue
        for score in _scores([record], metric):
            others = tuple(
                record.input_order[place] for slot, place in enumerate(record.permutation) if slot != gold
            )
            found.setdefault(others, {}).setdefault(gold, score)
    return found


def _not_drawn(column: Column) -> list[Record]:
    """Return the records in orders that are not drawn, and in which letters belong to places."""
    return [
        record
        for name, record in column.items()
        if not is_drawn(name) and labels_follow_slots(record.task, record.permutation)
    ]


def _scores(records: Iterable[Record], metric: Metric) -> list[ParsedScore]:
    return [
        (score, is_parsed(record, metric))
        for record in records
        if (score := score_of(record, metric)) is not None
    ]


def _mean(scores: Sequence[ParsedScore]) -> ParsedScore:
    """Return the mean, and True if any answer can be parsed."""
    return (fmean(score for score, _ in scores), any(parsed for _, parsed in scores)) if scores else MISSING
