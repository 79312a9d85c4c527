"""Molecules for tests, whose invented properties follow from their atoms."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pine_engine.lab.molecules.request_rows import PROPERTIES, Molecule

ENDS = ("O", "N", "F", "C#N", "C=O", "C(=O)O", "OC", "NC", "C#C", "C=C")
SMILES = tuple(f"{'C' * length}{end}" for length in range(1, 11) for end in ENDS)
"""Chains with an end; some are one molecule in two spellings."""


def values(smiles: str) -> tuple[str, ...]:
    """Return six numbers that are linear in the numbers of letters, so that a linear model can learn them."""
    carbon, oxygen, nitrogen = (smiles.count(letter) for letter in "CON")
    numbers = (
        *(10 * carbon + 4 * oxygen + 7 * nitrogen, -6 + 0.1 * carbon, oxygen - nitrogen),
        *(8 - 0.3 * carbon, 0.5 * oxygen + 0.25 * nitrogen, 5 * carbon + oxygen),
    )
    return tuple(f"{number:.4f}" for number in numbers)


def molecule(smiles: str) -> Molecule:
    return Molecule(smiles, smiles, values(smiles))


def row(smiles: str, **changed: Any) -> dict[str, Any]:
    documents = [{"title": name, "text": text} for name, text in zip(PROPERTIES, values(smiles), strict=True)]
    fields = {"id": f"m-{smiles}", "task": "molecule_generation", "documents": documents, "answers": [smiles]}
    return {**fields, "source": "written for tests", "license": "CC0-1.0", **changed}


def write_rows(path: Path, rows: Iterable[dict[str, Any]]) -> Path:
    path.write_text("".join(f"{json.dumps(one)}\n" for one in rows), encoding="utf-8")
    return path
