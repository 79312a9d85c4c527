"""The sections of a judge's data set: means of their subsets by weight, as in RewardBench."""

import numpy as np

from pine_engine.evaluation.rewardbench import SUBSETS, find_subset
from pine_engine.evaluation.summary.grid import Grid
from pine_engine.evaluation.summary.intervals import Estimate, Flags, Floats
from pine_engine.evaluation.summary.results import Section, Subset
from pine_engine.evaluation.summary.view import View, sure

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


Sections = tuple[tuple[Section, ...], Estimate | None]
"""Sections, and their plain mean if there are several."""


def section_values(view: View, values: Floats, read: Flags | None, *several: Weights) -> list[Sections]:
    """The sections by each of the weights; none by empty ones.

    values: (n,), one for each example, NaN where it has none. read: as for View.mean.
    Source: RewardBench, specification 9.1.
    """
    of_subset: dict[tuple[str, str], list[int]] = {}
    for row, one in enumerate(view.grid.some_records()):
        if one.section is not None and np.isfinite(values[row]):
            of_subset.setdefault((one.section, one.subset or ""), []).append(row)
    means = {names: sure(view.mean(_only(values, rows), read=read)) for names, rows in of_subset.items()}

    def weighed(weights: Weights) -> Sections:
        found = {names: weight for names, weight in weights.items() if names in of_subset and weight}
        sections = []
        whole: Floats = np.zeros(len(values))
        for name in dict.fromkeys(section for section, _ in found):
            subsets = {names: weight for names, weight in found.items() if names[0] == name}
            share: Floats = np.zeros(len(values))
            for names, weight in subsets.items():
                share[of_subset[names]] = weight / sum(subsets.values()) / len(of_subset[names])
            whole += share
            sections.append(
                Section(
                    name=name,
                    value=sure(view.mean(_only(values, share > 0), share, read=read)),
                    subsets=tuple(
                        Subset(name=names[1], weight=float(weight), value=means[names])
                        for names, weight in subsets.items()
                    ),
                )
            )
        total = view.mean(_only(values, whole > 0), whole, read=read) if len(sections) > 1 else None
        return tuple(sections), total

    return [weighed(weights) for weights in several]


def _only(values: Floats, rows: list[int] | Flags) -> Floats:
    """These rows, and NaN in all others."""
    kept: Floats = np.full(len(values), np.nan)
    kept[rows] = values[rows]
    return kept
