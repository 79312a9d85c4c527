"""Molecules with their six properties: SMILES strings, records, and reader and split of a data set."""

import hashlib
import math
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from pine_engine.errors import InputError
from pine_engine.optional_packages import import_extra
from pine_engine.prompts.request import DataRow, read_rows

_ENERGIES = dict.fromkeys(("homo", "lumo", "gap"), "eV")
PROPERTIES: dict[str, str] = {"alpha": "Bohr³", **_ENERGIES, "mu": "Debye", "cv": "cal/(mol K)"}
"""Name and unit of each property, as in QM9: polarizability, energies of the highest occupied and lowest
unoccupied orbital, their difference, dipole moment, heat capacity at 298.15 K."""

HELD_OUT_FRACTION = 20  # one of this many molecules of the generator's half is held out, to measure the loss

Part = Literal["train", "held_out", "predictor"]
"""Part of a data set: training and held-out molecules of the generator, and molecules of the predictor."""


@dataclass(frozen=True)
class Molecule:
    """A molecule with its properties."""

    id: str  # of its row in the data set
    smiles: str  # canonical
    texts: tuple[str, ...]  # values of PROPERTIES, in their order and units, as in the data set

    @cached_property
    def properties(self) -> tuple[float, ...]:
        """Values of PROPERTIES as numbers."""
        return tuple(map(float, self.texts))


@dataclass(frozen=True)
class GeneratedMolecule:
    """Answer of one method to one request in one order of its properties."""

    method: str
    request: int  # index of the molecule whose properties were requested
    turn: int  # index of the order among the orders of this request
    order: tuple[int, ...]  # permutation of PROPERTIES
    text: str
    smiles: str | None  # canonical SMILES of the text; None if the text is invalid


class MoleculeRow(DataRow):
    """A row whose documents are the six properties and whose first answer is the SMILES."""

    answers: Annotated[list[str], Field(min_length=1)]
    source: str = ""
    license: str = ""


def read_molecules(path: Path, limit: int | None = None) -> tuple[list[Molecule], tuple[str, ...]]:
    """Read the first `limit` rows of a JSONL file; return distinct molecules, and sources with licenses."""
    rows = read_rows(path, MoleculeRow, limit)
    molecules: dict[str, Molecule] = {}
    for number, row in rows.items():
        molecule = _molecule(row, f"{path}, line {number}")
        molecules.setdefault(molecule.smiles, molecule)
    sources = {
        f"{row.source or 'unnamed source'} ({row.license or 'no license given'})" for row in rows.values()
    }
    return list(molecules.values()), tuple(sorted(sources))


def split_molecules(molecules: list[Molecule]) -> dict[Part, list[Molecule]]:
    """Split molecules by a hash of their SMILES, independent of their order.

    One half trains the generator and the other the predictor that evaluates it, so that no molecule
    influences both.
    """
    split: dict[Part, list[Molecule]] = {"train": [], "held_out": [], "predictor": []}
    for molecule in molecules:
        # Different digits of the hash, so that the two decisions are independent.
        rest, half = divmod(int(hashlib.sha256(molecule.smiles.encode()).hexdigest(), 16), 2)
        part: Part = "predictor" if half else "train" if rest % HELD_OUT_FRACTION else "held_out"
        split[part].append(molecule)
    return split


def _molecule(row: MoleculeRow, where: str) -> Molecule:
    texts = {document.title: document.text for document in row.documents}
    if sorted(texts) != sorted(PROPERTIES) or len(row.documents) != len(PROPERTIES):
        titles = f"the documents are titled {', '.join(texts) or 'nothing'}"
        raise InputError(f"{where}: {titles}; give each of {', '.join(PROPERTIES)} once")
    smiles = canonical_smiles(row.answers[0])
    if smiles is None:
        raise InputError(f"{where}: invalid SMILES {row.answers[0]!r}; give a valid SMILES string")
    for name, text in texts.items():
        with suppress(ValueError):
            if math.isfinite(float(text)):
                continue
        raise InputError(f"{where}: {name} is {text!r}; give a number", field=name)
    return Molecule(row.id, smiles, tuple(texts[name] for name in PROPERTIES))


def rdkit(module: str) -> Any:
    """Import a module of RDKit, such as "Chem", with the log of RDKit disabled."""
    packages = ("rdkit", "scikit-learn")
    import_extra("rdkit.RDLogger", *packages).DisableLog("rdApp.*")
    return import_extra(f"rdkit.{module}", *packages)


def parse_smiles(smiles: str) -> Any | None:
    """Return the RDKit molecule of a SMILES string, or None if the string is invalid or empty.

    RDKit reads text after a blank as a name. Here a blank makes the string invalid.
    """
    if not smiles or any(character.isspace() for character in smiles):
        return None
    molecule = rdkit("Chem").MolFromSmiles(smiles)
    return molecule if molecule is not None and molecule.GetNumAtoms() else None


def canonical_smiles(smiles: str) -> str | None:
    """Return the canonical SMILES of a molecule, or None if the string is invalid."""
    molecule = parse_smiles(smiles)
    return None if molecule is None else str(rdkit("Chem").MolToSmiles(molecule))
