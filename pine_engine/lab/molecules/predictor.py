"""Regression of the six properties of a molecule on its descriptors."""

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from pine_engine.errors import InputError
from pine_engine.lab.molecules.descriptors import Floats, compute_descriptors
from pine_engine.lab.molecules.request_rows import Molecule
from pine_engine.optional_packages import import_extra

MIN_MOLECULES = 20
MAX_MOLECULES = 4000
"""Size of the random sample that the predictor is fitted on. Memory grows with its square, to 0.5 GB."""

MIN_OCCURRENCES = 2  # fingerprint columns that fewer molecules have are ignored
PAIR_WIDTH, PATH_WIDTH = 4.0, 2.0
"""Kernel widths, in medians of the squared distances of pairs and of the distances of paths."""

RIDGE_ALPHA, KERNEL_RIDGE_ALPHA = 1e-3, 1e-2


class Predictor:
    """Regression of the six properties on descriptors of a molecule.

    A linear model of atom, bond and ring counts, and a kernel ridge regression of its residuals on atom pairs
    and paths. Fitting takes seconds, so no fitted model is stored.
    """

    def __init__(self, molecules: Sequence[Molecule]) -> None:
        """Fit the regression. Raises InputError for too few molecules."""
        if len(molecules) < MIN_MOLECULES:
            problem = f"too few molecules for the predictor: got {len(molecules)}"
            raise InputError(f"{problem}, expected {MIN_MOLECULES} or more")
        if len(molecules) > MAX_MOLECULES:
            molecules = random.Random(0).sample(molecules, MAX_MOLECULES)
        counts, *fingerprints = compute_descriptors([molecule.smiles for molecule in molecules])
        values = np.array([molecule.properties for molecule in molecules])
        self._mean, std = values.mean(0), values.std(0)
        self._std = np.where(std > 0, std, 1.0)
        self._columns = [(array > 0).sum(0) >= MIN_OCCURRENCES for array in fingerprints]
        self._known = [array[:, columns] for array, columns in zip(fingerprints, self._columns, strict=True)]
        pairs, paths = self._distances(*fingerprints)
        # The median is 0 if more than half of the pairs of molecules are equal.
        self._widths = PAIR_WIDTH * (np.median(pairs) or 1.0), PATH_WIDTH * (np.median(paths) or 1.0)
        targets = (values - self._mean) / self._std
        self._linear = sklearn("linear_model").Ridge(alpha=RIDGE_ALPHA).fit(counts, targets)
        kernel_ridge = sklearn("kernel_ridge").KernelRidge(alpha=KERNEL_RIDGE_ALPHA, kernel="precomputed")
        residuals = targets - self._linear.predict(counts)
        self._kernel_ridge = kernel_ridge.fit(self._kernel(pairs, paths), residuals)

    def predict(self, smiles: Sequence[str]) -> Floats:
        """Return the properties of valid SMILES strings (molecules, 6), in order and units of PROPERTIES."""
        if not smiles:
            return np.empty((0, len(self._mean)))
        counts, pairs, paths = compute_descriptors(smiles)
        residuals = self._kernel_ridge.predict(self._kernel(*self._distances(pairs, paths)))
        predicted: Floats = (self._linear.predict(counts) + residuals) * self._std + self._mean
        return predicted

    def _distances(self, pairs: Floats, paths: Floats) -> tuple[Floats, Floats]:
        """Return squared distances by pairs and distances by paths, to each known molecule."""
        euclidean = sklearn("metrics.pairwise").euclidean_distances
        (has_pair, has_path), (known_pairs, known_paths) = self._columns, self._known
        by_pairs = euclidean(pairs[:, has_pair], known_pairs, squared=True)
        return by_pairs, euclidean(paths[:, has_path], known_paths)

    def _kernel(self, pairs: Floats, paths: Floats) -> Floats:
        pair_width, path_width = self._widths
        kernel: Floats = np.exp(-pairs / pair_width) + np.exp(-paths / path_width)
        return kernel


def sklearn(module: str) -> Any:
    """Import a module of scikit-learn."""
    return import_extra(f"sklearn.{module}", "scikit-learn", "rdkit")
