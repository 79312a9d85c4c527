"""The scenarios of the paper's tables of judges: the better answer first, second, both, and shuffled.

The better answer bears the letter of its place, as when a user enters the answers the other way round. All
but the shuffle are over the pairs that were judged in both orders.
"""

from collections.abc import Callable, Iterator
from statistics import fmean

import numpy as np

from pine_engine.evaluation.arrangements import is_drawn
from pine_engine.evaluation.grid import Column
from pine_engine.evaluation.published import BOTH, CHANGED, FIRST, SECOND, SHUFFLED
from pine_engine.evaluation.results import Scenario
from pine_engine.evaluation.sections import Weights, section_values
from pine_engine.evaluation.slots import by_gold_slot
from pine_engine.evaluation.verdicts import differ, number
from pine_engine.evaluation.view import View

OfPair = Callable[[View, Column], float | None]
"""What a scenario says of one pair: a score, 0 or 1, or nats; None if it was not measured."""


def scenario_values(view: View, weights: Weights, old_weights: Weights) -> tuple[Scenario, ...]:
    """The scenarios that were measured; none for a task without letters, and for more than two answers.

    weights, old_weights: of subsets; the latter empty if they are no others.
    """
    sizes = {record.num_documents for record in view.grid.some_records()}
    if not view.task.has_letters or sizes != {2}:
        return ()
    return tuple(_scenarios(view, weights, old_weights))


def _scenarios(view: View, weights: Weights, old_weights: Weights) -> Iterator[Scenario]:
    for name, of_pair in _ROWS.items():
        values = np.array([of_pair(view, column) for column in view.columns], dtype=np.float64)
        value = view.mean(values)
        if value is not None:
            sections, total = section_values(view, weights, values)
            old_sections, old_total = section_values(view, old_weights, values)
            yield Scenario(
                name=name,
                value=value,
                sections=sections,
                total=total,
                sections_v0_1_1=old_sections,
                total_v0_1_1=old_total,
            )


def _in_slot(view: View, column: Column, slot: int) -> float | None:
    """The number with the better answer in this slot, if it was measured in the other one too."""
    placed = by_gold_slot(column)
    return number(placed[slot], view.kind) if placed.keys() == {0, 1} else None


def _over_both(view: View, column: Column) -> float | None:
    found = [_in_slot(view, column, slot) for slot in (0, 1)]
    values = [value for value in found if value is not None]
    return fmean(values) if values else None


def _shuffled(view: View, column: Column) -> float | None:
    found = [number(record, view.kind) for name, record in column.items() if is_drawn(name)]
    values = [value for value in found if value is not None]
    return fmean(values) if values else None


def _changes(view: View, column: Column) -> float | None:
    placed = by_gold_slot(column)
    if view.kind == "logprob" or placed.keys() != {0, 1}:
        return None
    return differ([placed[0], placed[1]], view.kind, view.task)


_ROWS: dict[str, OfPair] = {
    FIRST: lambda view, column: _in_slot(view, column, 0),
    SECOND: lambda view, column: _in_slot(view, column, 1),
    BOTH: _over_both,
    SHUFFLED: _shuffled,
    CHANGED: _changes,
}
