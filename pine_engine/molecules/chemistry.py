"""RDKit, asked for what this project needs of it: is a string a molecule, and which spellings has it."""

import importlib
from typing import Any

from pine_engine.errors import InputError
from pine_engine.extras import how_to_install

ADVICE = how_to_install("rdkit", "scikit-learn")
"""Both, since what reads molecules goes on to judge them."""


def rdkit(module: str) -> Any:
    """A module of RDKit, such as "Chem", which no longer writes on stderr what it thinks of a string.

    Raises InputError if RDKit is not installed.
    """
    try:
        importlib.import_module("rdkit.RDLogger").DisableLog("rdApp.*")
        return importlib.import_module(f"rdkit.{module}")
    except ImportError as error:
        raise InputError(
            f"RDKit is not installed, and molecules cannot be read without it; {ADVICE}"
        ) from error


def parse_smiles(smiles: str) -> Any | None:
    """RDKit's molecule; None for what is no molecule: bad syntax, impossible valences, nothing at all.

    RDKit also reads what follows a blank as a name; here a blank makes a string invalid.
    """
    if not smiles or any(letter.isspace() for letter in smiles):
        return None
    molecule = rdkit("Chem").MolFromSmiles(smiles)
    return molecule if molecule is not None and molecule.GetNumAtoms() else None


def canonical_smiles(smiles: str) -> str | None:
    """The one spelling that all spellings of a molecule share; None for what is no molecule."""
    molecule = parse_smiles(smiles)
    return None if molecule is None else str(rdkit("Chem").MolToSmiles(molecule))


def random_smiles(smiles: str, seed: int) -> str:
    """Another spelling of a molecule that can be read; equal seeds, from 0, give equal ones."""
    molecule = parse_smiles(smiles)
    # To RDKit 0 is no seed.
    return str(rdkit("Chem").MolToRandomSmilesVect(molecule, 1, randomSeed=max(seed, 1))[0])
