"""The sections of a judge's data set: means of their subsets by weight, as in RewardBench."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from pine_engine.evaluation.grid import Grid
from pine_engine.evaluation.intervals import Estimate, Floats
from pine_engine.evaluation.results import Section, Subset
from pine_engine.evaluation.rewardbench import SUBSETS, find_subset
from pine_engine.evaluation.view import View, sure

Weights = dict[tuple[str, str], float]
"""How much each subset weighs in its section, by the names of both."""


def subset_weights(grid: Grid) -> Weights:
    """Of the subsets that the records name, in RewardBench's order, others last.

    One without a weight weighs as much as it has examples.
    """
    weights: Weights = {}
    for record in grid.some_records():
        if record.section is not None:
            names = record.section, record.subset or ""
            weights[names] = weights.get(names, 0) + 1 if record.weight is None else record.weight
    rank = {(subset.section, subset.name): place for place, subset in enumerate(SUBSETS)}
    return {names: weights[names] for names in sorted(weights, key=lambda one: rank.get(one, len(rank)))}


def old_subset_weights(weights: Weights) -> Weights:
    """The same with the weights that RewardBench 0.1.1 gave its subsets; empty if those are no others."""
    found = {names: find_subset(names[1]) for names in weights}
    old = {
        names: one.weight_v0_1_1 if (one := found[names]) and one.weight_v0_1_1 is not None else weight
        for names, weight in weights.items()
    }
    return {} if old == weights else old


def section_values(
    view: View, weights: Mapping[tuple[str, str], float], values: Floats
) -> tuple[tuple[Section, ...], Estimate | None]:
    """The sections that have weights, and the plain mean of them if there are several.

    values: (n,), one for each example, NaN where it has none.
    Source: RewardBench, specification 9.1.
    """
    of_subset: dict[tuple[str, str], list[int]] = {}
    for row, one in enumerate(view.grid.some_records()):
        if one.section is not None and np.isfinite(values[row]):
            of_subset.setdefault((one.section, one.subset or ""), []).append(row)
    found = {names: weight for names, weight in weights.items() if names in of_subset and weight}
    sections = []
    whole: Floats = np.zeros(len(values))
    for name in dict.fromkeys(section for section, _ in found):
        subsets = {names: weight for names, weight in found.items() if names[0] == name}
        share: Floats = np.zeros(len(values))
        parts = []
        for names, weight in subsets.items():
            rows = of_subset[names]
            share[rows] = weight / sum(subsets.values()) / len(rows)
            value = sure(view.mean(_only(values, rows)))
            parts.append(Subset(name=names[1], weight=float(weight), value=value))
        whole += share
        value = sure(view.mean(_only(values, share > 0), share))
        sections.append(Section(name=name, value=value, subsets=tuple(parts)))
    total = view.mean(_only(values, whole > 0), whole) if len(sections) > 1 else None
    return tuple(sections), total


def _only(values: Floats, rows: list[int] | NDArray[np.bool_]) -> Floats:
    """These rows, and NaN in all others."""
    kept: Floats = np.full(len(values), np.nan)
    kept[rows] = values[rows]
    return kept
