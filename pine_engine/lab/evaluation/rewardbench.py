"""Weights of the subsets of RewardBench in its sections."""

import tomllib
from pathlib import Path

Weights = dict[tuple[str, str], float]
"""Weight of each subset of a judge's data in its section, by section and subset."""

_TABLES = tomllib.loads(Path(__file__).with_name("rewardbench.toml").read_text(encoding="utf-8"))

WEIGHTS, WEIGHTS_V0_1_1 = (
    {
        (section, subset): float(weight)
        for section, of_section in table.items()
        for subset, weight in of_section.items()
    }
    for table in (_TABLES["weights"], _TABLES["weights_v0_1_1"])
)
"""Weights of all subsets, and those that differ in version 0.1.1."""

SECTION_OF = {subset: section for section, subset in WEIGHTS}
SECTIONS = tuple(_TABLES["weights"])
SUBSETS = {subset.lower(): subset for subset in SECTION_OF}
"""Names of the subsets by their lower-case form."""
