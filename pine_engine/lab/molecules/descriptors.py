"""Descriptors of molecules, computed by RDKit."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pine_engine.lab.molecules.request_rows import parse_smiles, rdkit

Floats = NDArray[np.float64]

ELEMENTS = ("H", "C", "N", "O", "F")
BOND_ORDERS = (1.0, 1.5, 2.0, 3.0)
FINGERPRINT_SIZE = 4096
"""Columns of a hashed fingerprint. The atom pairs of QM9 occupy a tenth of them."""

MAX_PATH_LENGTH = 5  # longest path of the path fingerprint, in bonds


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
