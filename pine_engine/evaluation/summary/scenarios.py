"""The scenarios of the paper's tables of judges: the better answer first, second, both, and shuffled.

The better answer bears the letter of its place, as when a user enters the answers the other way round. All
but the shuffle are over the pairs that were judged in both orders.
"""

from collections.abc import Callable, Iterable
from statistics import fmean

import numpy as np

from pine_engine.evaluation.document_orders import is_drawn
from pine_engine.evaluation.records import Record
from pine_engine.evaluation.summary.grid import Column, Scores
from pine_engine.evaluation.summary.intervals import Flags
from pine_engine.evaluation.summary.results import Scenario
from pine_engine.evaluation.summary.sections import section_values
from pine_engine.evaluation.summary.slots import by_gold_slot
from pine_engine.evaluation.summary.verdicts import differ
from pine_engine.prompts.tasks import get_task

FIRST, SECOND, SHUFFLED = "better answer is A", "better answer is B", "shuffled"
"""Where the better answer stands, as in the paper's tables."""

BOTH, CHANGED = "mean of A and B", "verdict changes"
"""What is made of the first two; in the paper only the latter, in Table 4."""

Placed = dict[int, Record]
"""Of a pair that was judged in both orders, the records by slot of the better answer; else empty."""


def scenario_values(scores: Scores) -> tuple[Scenario, ...]:
    """The scenarios that were measured; none for a task without letters, and for more than two answers."""
    sizes = {record.num_documents for record in scores.grid.some_records()}
    if not get_task(scores.grid.task).has_letters or sizes != {2}:
        return ()
    placed = [by_gold_slot(column) for column in scores.columns]
    pairs = [(column, of_slot if of_slot.keys() == {0, 1} else {})
             for column, of_slot in zip(scores.columns, placed, strict=True)]  # fmt: skip
    scored = {name: [records_of(*pair) for pair in pairs] for name, records_of in _SCORED.items()}
    by_name: dict[str, tuple[list[float | None], Flags | None]] = {
        name: (
            [_mean(scores, one) for one in records],
            np.array([any(map(scores.reads, one)) for one in records]),
        )
        for name, records in scored.items()
    }
    by_name[CHANGED] = [_changes(scores, of_slot) for _, of_slot in pairs], None
    found = []
    for name, (of_pairs, read) in by_name.items():
        values = np.array(of_pairs, dtype=np.float64)
        value = scores.mean(values, read=read)
        if value is None:
            continue
        found.append(Scenario(name=name, value=value, **section_values(scores, values, read)))
    return tuple(found)


def _mean(scores: Scores, records: Iterable[Record]) -> float | None:
    values = [value for record in records if (value := scores.number(record)) is not None]
    return fmean(values) if values else None


def _changes(scores: Scores, placed: Placed) -> float | None:
    if scores.kind == "logprob" or not placed:
        return None
    return differ([placed[0], placed[1]], scores.kind)


_SCORED: dict[str, Callable[[Column, Placed], list[Record]]] = {
    FIRST: lambda _, placed: [placed[0]] if placed else [],
    SECOND: lambda _, placed: [placed[1]] if placed else [],
    BOTH: lambda _, placed: list(placed.values()),
    SHUFFLED: lambda column, _: [column[name] for name in column if is_drawn(name)],
}
"""Which records of a pair a scenario scores."""
