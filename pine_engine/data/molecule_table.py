"""QM9 as a table: the six properties that a molecule is asked for by, and its SMILES string."""

import math
from collections.abc import Iterable, Iterator
from typing import Annotated

from pydantic import AfterValidator, BaseModel, StringConstraints

from pine_engine.data.readers import SourceRecord
from pine_engine.data.schema import ExampleRow
from pine_engine.prompts.prompt import Document

EV_PER_HARTREE = 27.211386


def _is_finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError("expected a finite number")
    return value


Number = Annotated[float, AfterValidator(_is_finite)]


class MoleculeRecord(BaseModel):
    """A row of the table. alpha: Bohr^3. homo, lumo, gap: Hartree. mu: Debye. cv: cal/(mol K) at 298.15 K."""

    mol_id: Annotated[str, StringConstraints(pattern=r"^gdb_\d+$")]
    smiles: Annotated[str, StringConstraints(min_length=1)]
    alpha: Number
    homo: Number
    lumo: Number
    gap: Number
    mu: Number
    cv: Number


def convert_molecules(records: Iterable[SourceRecord]) -> Iterator[ExampleRow]:
    """One row per SMILES string, which is the answer; a string that was there before is left out.

    The documents are the properties, always in one order; energies are given in eV, to four digits.
    """
    seen: set[str] = set()
    for record in records:
        molecule = record.parse(MoleculeRecord)
        if molecule.smiles in seen:
            continue
        seen.add(molecule.smiles)
        texts = {
            "alpha": f"{molecule.alpha:g}",
            "homo": _ev(molecule.homo),
            "lumo": _ev(molecule.lumo),
            "gap": _ev(molecule.gap),
            "mu": f"{molecule.mu:g}",
            "cv": f"{molecule.cv:g}",
        }
        number = int(molecule.mol_id.removeprefix("gdb_"))
        yield ExampleRow(
            id=f"qm9-{number:06d}",
            task="molecule_generation",
            documents=tuple(Document(text, name) for name, text in texts.items()),
            answers=(molecule.smiles,),
            source="QM9",
            license="CC0-1.0",
            meta={"properties": {name: float(text) for name, text in texts.items()}},
        )


def _ev(hartree: float) -> str:
    return f"{hartree * EV_PER_HARTREE:.4f}"
