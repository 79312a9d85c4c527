"""Scenarios of the paper's tables of judges, and sections: means of subsets by weight, as in RewardBench.

In a scenario the better answer is first, second, both, or shuffled. It has the letter of its place, as when a
user enters the answers in another order. All scenarios but the shuffle are over the pairs that were judged in
both orders.
"""

from collections.abc import Iterator
from statistics import fmean

import numpy as np

from pine_engine.evaluation.answers import differ
from pine_engine.evaluation.document_orders import is_drawn
from pine_engine.evaluation.grid import Scores
from pine_engine.evaluation.intervals import Estimate, Flags, Floats
from pine_engine.evaluation.records import Record
from pine_engine.evaluation.slots import by_gold_slot
from pine_engine.prompts.tasks import get_task

FIRST, SECOND, SHUFFLED = "better answer is A", "better answer is B", "shuffled"
"""Place of the better answer, as in the paper's tables."""

BOTH, CHANGED = "mean of A and B", "verdict changes"
"""Computed from the first two. The paper has only the latter, in Table 4."""

SCENARIOS = (FIRST, SECOND, BOTH, SHUFFLED, CHANGED)

OVER_ORDERS = "mean over orders"
"""Scenario of all orders together, of any task."""


def scenario_scores(scores: Scores) -> Iterator[tuple[str, Floats, Flags | None]]:
    """Yield name, values (examples,) and flags of parsed answers of each scenario that was measured.

    A task without letters, or with more than two answers, has none.
    """
    sizes = {record.num_documents for record in scores.grid.some_records()}
    if not get_task(scores.grid.task).has_letters or sizes != {2}:
        return
    in_slots = [by_gold_slot(column) for column in scores.columns]
    pairs = [of_slot if of_slot.keys() == {0, 1} else {} for of_slot in in_slots]
    scored: dict[str, list[list[Record]]] = {
        FIRST: [[pair[0]] if pair else [] for pair in pairs],
        SECOND: [[pair[1]] if pair else [] for pair in pairs],
        BOTH: [list(pair.values()) for pair in pairs],
        SHUFFLED: [
            [record for name, record in column.items() if is_drawn(name)] for column in scores.columns
        ],
    }
    for name, of_examples in scored.items():
        found = [
            [score for record in records if (score := scores.score(record)) is not None]
            for records in of_examples
        ]
        values = np.array([fmean(one) if one else np.nan for one in found])
        if np.isfinite(values).any():
            yield name, values, np.array([any(map(scores.is_parsed, records)) for records in of_examples])
    if scores.metric != "logprob":
        changes = [differ([pair[0], pair[1]], scores.metric) if pair else None for pair in pairs]
        values = np.array(changes, dtype=np.float64)
        if np.isfinite(values).any():
            yield CHANGED, values, None


def section_estimates(
    scores: Scores, scenario: str, values: Floats, parsed: Flags | None
) -> Iterator[tuple[str, tuple[str, ...], Estimate | None]]:
    """Yield the subsets, the sections, and the plain mean of two or more sections, as in estimates.py.

    values: (examples,), NaN where an example has none. parsed: as for `Scores.mean`.
    Source: RewardBench, specification 9.1.
    """
    rows_of: dict[tuple[str, str], list[int]] = {}
    for row, record in enumerate(scores.grid.some_records()):
        if record.section is not None and np.isfinite(values[row]):
            rows_of.setdefault((record.section, record.subset or ""), []).append(row)
    for names, rows in rows_of.items():
        yield "subset", (scenario, *names), scores.mean(_only(values, rows), parsed=parsed)
    for version, weights in (("", scores.grid.weights), (" v0.1.1", scores.grid.weights_v0_1_1)):
        found = {names: weight for names, weight in weights.items() if names in rows_of and weight}
        sections = list(dict.fromkeys(section for section, _ in found))
        total: Floats = np.zeros(len(values))
        for section in sections:
            subsets = {names: weight for names, weight in found.items() if names[0] == section}
            share: Floats = np.zeros(len(values))
            for names, weight in subsets.items():
                share[rows_of[names]] = weight / sum(subsets.values()) / len(rows_of[names])
            total += share
            estimate = scores.mean(_only(values, share > 0), share, parsed=parsed)
            yield f"section{version}", (scenario, section), estimate
        if len(sections) > 1:
            estimate = scores.mean(_only(values, total > 0), total, parsed=parsed)
            yield f"total{version}", (scenario,), estimate


def _only(values: Floats, rows: list[int] | Flags) -> Floats:
    """Return these rows, and NaN in all others."""
    kept: Floats = np.full(len(values), np.nan)
    kept[rows] = values[rows]
    return kept
