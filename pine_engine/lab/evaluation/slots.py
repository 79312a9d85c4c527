"""Scores by slot of the gold document, where nothing else differs, and scenarios of the paper's judges.

A score counts for a slot if each example has a score in each slot shown, with its other documents in one
order (docs/evaluation.md). Letters of documents belong to the places, as when a user enters the documents in
another order.

In a scenario the better of two answers is first, second, both, or shuffled. All scenarios except the shuffle
are over the pairs that were judged in both orders.
"""

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from pine_engine.lab.evaluation.document_orders import is_gold_held, is_random_order, labels_follow_slots
from pine_engine.lab.evaluation.grid import Column, Groups, Metric, Scores, Values, answers_differ, score_of
from pine_engine.lab.evaluation.record import Record
from pine_engine.prompts.orders import Order
from pine_engine.prompts.tasks import TASKS

FIRST, SECOND, SHUFFLED = "better answer is A", "better answer is B", "shuffled"
"""Place of the better answer, as in the paper's tables."""

BOTH, CHANGED = "mean of A and B", "verdict changes"
"""Computed from the first two. The paper has only the latter, in Table 4."""

SCENARIOS = (FIRST, SECOND, BOTH, SHUFFLED, CHANGED)

OVER_ORDERS = "mean over orders"  # scenario of all orders together, of any task


def group_by_slot(columns: Sequence[Column], metric: Metric) -> dict[int, dict[int | None, Groups]]:
    """Return the scored records of each example by number of documents and slot from 0; None: shuffles.

    columns: records of one method. Examples of another number of documents have no records.
    """
    of_size: dict[int, dict[int, dict[Order, dict[int, Record]]]] = {}
    for row, column in enumerate(columns):
        if found := _by_order_of_others(column, metric):
            size = next(iter(column.values())).num_documents
            of_size.setdefault(size, {})[row] = found
    tables: dict[int, dict[int | None, Groups]] = {}
    for size, rows in sorted(of_size.items()):
        # For each example the order of the other documents with which most slots were measured.
        longest = [max(orders.values(), key=len) for orders in rows.values()]
        slots = sorted(set.intersection(*map(set, longest)))
        complete = {
            row: [in_slots for in_slots in orders.values() if in_slots.keys() >= set(slots)]
            for row, orders in rows.items()
        }
        if slots:
            tables[size] = {
                slot: [[in_slots[slot] for in_slots in complete.get(row, ())] for row in range(len(columns))]
                for slot in slots
            }
            shuffled = [_shuffled(column) if row in rows else [] for row, column in enumerate(columns)]
            tables[size][None] = shuffled
    return tables


def held_by_slot(scores: Scores) -> Iterator[tuple[int, int, Groups]]:
    """Yield number of documents, slot from 0, and the records with the gold document held in this slot.

    They are those of each order that leaves it there, if `gold-held` is one of them. Examples of another size
    or slot have no records.
    """
    held: list[tuple[tuple[int, int], list[Record]] | None] = []
    for column, names in zip(scores.columns, scores.grid.distinct, strict=True):
        slot = next((one.gold_slot for name, one in column.items() if is_gold_held(name)), None)
        records = [column[name] for name in names if column[name].gold_slot == slot]
        records = [one for one in records if labels_follow_slots(one.task, one.permutation)]
        held.append(None if slot is None else ((records[0].num_documents, slot), records))
    for place in sorted({one[0] for one in held if one}):
        yield *place, [one[1] if one and one[0] == place else [] for one in held]


def is_flat(in_slots: Iterable[float], shuffled: float) -> bool:
    """Return True if the scores in all slots equal the shuffled score, up to rounding."""
    return all(math.isclose(value, shuffled, rel_tol=1e-9, abs_tol=1e-12) for value in in_slots)


def scenario_values(scores: Scores) -> Iterator[tuple[str, Values]]:
    """Yield name and values of each measured scenario of a judge, none with more than two answers."""
    if not TASKS[scores.grid.task].is_judge or scores.grid.num_documents != [2]:
        return
    pairs = []
    for column in scores.columns:
        in_slots: dict[int, Record] = {}
        for slot, record in _with_gold_slot(column):
            in_slots.setdefault(slot, record)
        pairs.append([in_slots[0], in_slots[1]] if len(in_slots) == 2 else [])
    groups = {
        FIRST: [pair[:1] for pair in pairs],
        SECOND: [pair[1:] for pair in pairs],
        BOTH: pairs,
        SHUFFLED: [_shuffled(column) for column in scores.columns],
    }
    found = {name: scores.of(records) for name, records in groups.items()}
    if scores.metric != "logprob":
        changes = [answers_differ(pair, scores.metric) for pair in pairs]
        found[CHANGED] = np.array(changes, dtype=np.float64), None
    yield from ((name, values) for name, values in found.items() if np.isfinite(values[0]).any())


def _by_order_of_others(column: Column, metric: Metric) -> dict[Order, dict[int, Record]]:
    """Return the scored records of one example by the order of its other documents, then by slot."""
    found: dict[Order, dict[int, Record]] = {}
    for slot, record in _with_gold_slot(column):
        if score_of(record, metric) is not None:
            others = list(record.slots)
            del others[slot]
            found.setdefault(tuple(others), {}).setdefault(slot, record)
    return found


def _with_gold_slot(column: Column) -> list[tuple[int, Record]]:
    """Return the records without shuffles, in which letters belong to places, with their gold slots."""
    return [
        (record.gold_slot, record)
        for name, record in column.items()
        if record.gold_slot is not None
        and not is_random_order(name)
        and labels_follow_slots(record.task, record.permutation)
    ]


def _shuffled(column: Column) -> list[Record]:
    return [record for name, record in column.items() if is_random_order(name) and not is_gold_held(name)]
