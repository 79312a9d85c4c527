"""Molecules with their six properties, read from a data set and split in two halves that share none.

One half teaches the model that writes molecules, the other the predictor that judges them: who is judged
has not seen what the judge knows.
"""

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated

from pydantic import Field

from pine_engine.errors import InputError
from pine_engine.molecules.chemistry import canonical_smiles
from pine_engine.prompts.inputs import DataRow, read_lines

PROPERTIES: dict[str, str] = {
    "alpha": "Bohr³",
    "homo": "eV",
    "lumo": "eV",
    "gap": "eV",
    "mu": "Debye",
    "cv": "cal/(mol K)",
}
"""The six properties of the paper and the units of QM9: polarizability, energies of the highest occupied
and the lowest unoccupied orbital and their difference, dipole moment, heat capacity at 298.15 K."""

HELD_OUT_PART = 20
"""One in so many rows of the writing half is held out, to measure the loss on."""


@dataclass(frozen=True)
class Molecule:
    """A molecule in its canonical spelling, and its properties in the order and units of PROPERTIES.

    texts: the same values as the data set writes them.
    """

    id: str
    smiles: str
    texts: tuple[str, ...]

    @cached_property
    def properties(self) -> tuple[float, ...]:
        """The values as numbers."""
        return tuple(map(float, self.texts))


@dataclass(frozen=True)
class Halves:
    """What the writing model learns from, what its loss is measured on, what the predictor learns from."""

    writing: list[Molecule]
    held_out: list[Molecule]
    judging: list[Molecule]


class MoleculeRow(DataRow):
    """A row whose documents are the six properties and whose first answer is the SMILES."""

    answers: Annotated[list[str], Field(min_length=1)]
    source: str = ""
    license: str = ""


@dataclass(frozen=True)
class MoleculeSet:
    """The molecules of a file, each once; sources: where they are from, with the licence, as the rows say."""

    molecules: list[Molecule]
    sources: tuple[str, ...]


def read_molecules(path: Path, limit: int | None = None) -> MoleculeSet:
    """The molecules of the first rows of a JSONL file, or of all.

    Raises InputError that names the file and the line of a row without the six properties, with a value
    that is no number, or with a SMILES that is no molecule.
    """
    rows = read_lines(MoleculeRow, path, limit)
    found: dict[str, Molecule] = {}
    for number, row in rows.items():
        molecule = _molecule(row, f"{path}, line {number}")
        found.setdefault(molecule.smiles, molecule)
    sources = {
        f"{row.source or 'unnamed source'} ({row.license or 'no licence given'})" for row in rows.values()
    }
    return MoleculeSet(list(found.values()), tuple(sorted(sources)))


def split_halves(molecules: list[Molecule]) -> Halves:
    """The two halves and what is held out, by a hash of each SMILES: the same wherever a molecule stands."""
    halves = Halves([], [], [])
    for molecule in molecules:
        # Hashed twice over by different digits, so that holding out and halving are independent.
        number = int(hashlib.sha256(molecule.smiles.encode()).hexdigest(), 16)
        part, rest = number % 2, number // 2
        if part:
            halves.judging.append(molecule)
        elif rest % HELD_OUT_PART:
            halves.writing.append(molecule)
        else:
            halves.held_out.append(molecule)
    return halves


def _molecule(row: MoleculeRow, where: str) -> Molecule:
    texts = {document.title: document.text for document in row.documents}
    if sorted(texts) != sorted(PROPERTIES) or len(row.documents) != len(PROPERTIES):
        raise InputError(
            f"{where}: the documents are titled {', '.join(texts) or 'nothing'}; give each of "
            f"{', '.join(PROPERTIES)} once"
        )
    smiles = canonical_smiles(row.answers[0])
    if smiles is None:
        raise InputError(f"{where}: {row.answers[0]!r} is no molecule; give a SMILES string")
    for name, text in texts.items():
        if not _is_number(text):
            raise InputError(f"{where}: {name} is {text!r}; give a number")
    return Molecule(row.id, smiles, tuple(texts[name] for name in PROPERTIES))


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
