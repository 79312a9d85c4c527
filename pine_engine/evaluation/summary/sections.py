"""The sections of a judge's data set: means of their subsets by weight, as in RewardBench."""

from typing import Any

import numpy as np

from pine_engine.evaluation.summary.grid import Scores, Weights, sure
from pine_engine.evaluation.summary.intervals import Estimate, Flags, Floats
from pine_engine.evaluation.summary.results import SectionValue, SubsetValue


def section_values(scores: Scores, values: Floats, read: Flags | None) -> dict[str, Any]:
    """The sections and their plain mean, None of fewer than two, as the fields of a Measure; also as v0.1.1.

    values: (n,), one for each example, NaN where it has none. read: as for Scores.mean.
    Source: RewardBench, specification 9.1.
    """
    of_subset: dict[tuple[str, str], list[int]] = {}
    for row, one in enumerate(scores.grid.some_records()):
        if one.section is not None and np.isfinite(values[row]):
            of_subset.setdefault((one.section, one.subset or ""), []).append(row)
    means = {names: sure(scores.mean(_only(values, rows), read=read)) for names, rows in of_subset.items()}

    def weighed(weights: Weights) -> tuple[tuple[SectionValue, ...], Estimate | None]:
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
                SectionValue(
                    name=name,
                    value=sure(scores.mean(_only(values, share > 0), share, read=read)),
                    subsets=tuple(
                        SubsetValue(name=names[1], weight=float(weight), value=means[names])
                        for names, weight in subsets.items()
                    ),
                )
            )
        total = scores.mean(_only(values, whole > 0), whole, read=read) if len(sections) > 1 else None
        return tuple(sections), total

    sections, total = weighed(scores.grid.weights)
    old_sections, old_total = weighed(scores.grid.weights_v0_1_1)
    return {
        "sections": sections,
        "total": total,
        "sections_v0_1_1": old_sections,
        "total_v0_1_1": old_total,
    }


def _only(values: Floats, rows: list[int] | Flags) -> Floats:
    """These rows, and NaN in all others."""
    kept: Floats = np.full(len(values), np.nan)
    kept[rows] = values[rows]
    return kept
