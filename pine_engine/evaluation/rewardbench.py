"""Subsets of RewardBench, with their sections and weights, from rewardbench.toml."""

import tomllib
from pathlib import Path

Weights = dict[tuple[str, str], float]
"""Weight of each subset of a judge's data in its section, by section and subset."""

_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))

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

_BY_NAME = {subset.lower(): subset for subset in SECTION_OF}


def find_subset(name: str) -> str | None:
    """Return the subset of a name, in any capitals; None if there is none."""
    return _BY_NAME.get(name.lower())
