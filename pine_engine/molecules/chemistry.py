"""SMILES strings and molecule descriptors, computed by RDKit."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pine_engine.extras import import_extra

Floats = NDArray[np.float64]

ELEMENTS = ("H", "C", "N", "O", "F")
BOND_ORDERS = (1.0, 1.5, 2.0, 3.0)
FINGERPRINT_SIZE = 4096
"""Columns of a hashed fingerprint. The atom pairs of QM9 occupy a tenth of them."""

MAX_PATH_LENGTH = 5  # longest path of the path fingerprint, in bonds


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


def compute_descriptors(smiles: Sequence[str]) -> tuple[Floats, Floats, Floats]:
    """Return the descriptors of M valid SMILES strings: counts, pairs and paths.

    Shape:
        counts: (M, 10), numbers of atoms per element, bonds per order, and rings.
        pairs: (M, FINGERPRINT_SIZE), counts of atom pairs at each distance.
        paths: (M, FINGERPRINT_SIZE), square roots of the counts of paths up to MAX_PATH_LENGTH bonds.
    """
    generators = rdkit("Chem.rdFingerprintGenerator")
    pairs = generators.GetAtomPairGenerator(fpSize=FINGERPRINT_SIZE, countSimulation=False)
    paths = generators.GetRDKitFPGenerator(
        fpSize=FINGERPRINT_SIZE, maxPath=MAX_PATH_LENGTH, countSimulation=False
    )
    molecules = [parse_smiles(text) for text in smiles]
    return (
        np.array(list(map(_counts, molecules)), dtype=np.float64),
        np.array(list(map(pairs.GetCountFingerprintAsNumPy, molecules)), dtype=np.float64),
        np.sqrt(list(map(paths.GetCountFingerprintAsNumPy, molecules)), dtype=np.float64),
    )


def _counts(molecule: object) -> list[int]:
    with_hydrogens = rdkit("Chem").AddHs(molecule)
    elements = [atom.GetSymbol() for atom in with_hydrogens.GetAtoms()]
    orders = [bond.GetBondTypeAsDouble() for bond in with_hydrogens.GetBonds()]
    num_rings = with_hydrogens.GetRingInfo().NumRings()
    return [*map(elements.count, ELEMENTS), *map(orders.count, BOND_ORDERS), num_rings]
