"""Metrics of generated molecules: validity, diversity, and errors of their predicted properties.

The error of a property is the distance between the requested value and the value predicted for the generated
molecule. Invalid answers have no properties and no errors, so read errors together with validity.
"""

import random
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from pine_engine.errors import InputError
from pine_engine.lab.molecules.request_rows import (
    PROPERTIES,
    GeneratedMolecule,
    Molecule,
    parse_smiles,
    rdkit,
)
from pine_engine.optional_packages import import_extra

Floats = NDArray[np.float64]

ELEMENTS = ("H", "C", "N", "O", "F")
BOND_ORDERS = (1.0, 1.5, 2.0, 3.0)
FINGERPRINT_SIZE = 4096
"""Columns of a hashed fingerprint. The atom pairs of QM9 occupy a tenth of them."""

MAX_PATH_LENGTH = 5  # longest path of the path fingerprint, in bonds

MIN_MOLECULES = 20
MAX_MOLECULES = 4000
"""Size of the random sample that the predictor is fitted on. Memory grows with its square, to 0.5 GB."""

MIN_OCCURRENCES = 2  # fingerprint columns that fewer molecules have are ignored

PAIR_WIDTH, PATH_WIDTH = 4.0, 2.0
"""Kernel widths, in medians of the squared distances of pairs and of the distances of paths."""

RIDGE_ALPHA, KERNEL_RIDGE_ALPHA = 1e-3, 1e-2
NUM_RESAMPLES = 1000
CONFIDENCE = 95  # confidence level of the intervals, in percent

_Errors = dict[tuple[int, tuple[int, ...]], Floats]  # errors of the six properties by request and order


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


class MeanError(BaseModel):
    """Mean over n values, with the 95 % bootstrap interval over requests."""

    model_config = ConfigDict(frozen=True)

    mean: float
    low: float
    high: float
    n: int


class MethodMetrics(BaseModel):
    """Metrics of one method.

    `more_error` is the difference to the error of the first method, paired over the requests and orders that
    both answered with a molecule; None for the first method.
    """

    model_config = ConfigDict(frozen=True)

    method: str
    written: int  # number of answers
    valid: float  # fraction of the answers that are molecules
    unique: float | None  # fraction of distinct molecules among the valid ones of one order; mean over orders
    novel: float | None  # fraction of the distinct molecules of all orders that are not in the training data
    changed: float  # fraction of the requests whose answer differs between orders
    errors: dict[str, MeanError] | None  # mean absolute error per property; None without a valid molecule
    more_error: dict[str, MeanError] | None


def compute_metrics(
    generated: Sequence[GeneratedMolecule],
    requests: Sequence[Molecule],
    predictor: Predictor,
    training_smiles: Collection[str],
) -> list[MethodMetrics]:
    """Return the metrics of each method in `generated`, in order of first occurrence."""
    distinct = sorted({answer.smiles for answer in generated if answer.smiles is not None})
    predicted = dict(zip(distinct, predictor.predict(distinct), strict=True))
    requested = np.array([molecule.properties for molecule in requests])
    answers: dict[str, list[GeneratedMolecule]] = {}
    errors: dict[str, _Errors] = {}
    for answer in generated:
        answers.setdefault(answer.method, []).append(answer)
        method_errors = errors.setdefault(answer.method, {})
        if answer.smiles is not None:
            error = np.abs(predicted[answer.smiles] - requested[answer.request])
            method_errors[answer.request, answer.order] = error
    first, *_ = errors
    return [
        _method_metrics(
            answers[method], training_smiles, errors[method], None if method == first else errors[first]
        )
        for method in errors
    ]


def compute_references(requests: Sequence[Molecule], predictor: Predictor) -> dict[str, dict[str, MeanError]]:
    """Return the errors per property of molecules that were not generated.

    predictor: of the requested molecules themselves. mismatched_baseline: of another request's molecule, as
    if requests were ignored; each molecule is that of exactly one other request.
    """
    predicted = predictor.predict([molecule.smiles for molecule in requests])
    requested = np.array([molecule.properties for molecule in requests])
    indices = np.arange(len(requests))
    # Shuffled, because neighbors in a data set are often similar.
    cycle = np.random.default_rng(0).permutation(len(requests))
    mismatched = np.empty_like(predicted)
    mismatched[cycle] = predicted[np.roll(cycle, 1)]
    return {
        "predictor": _mean_errors(np.abs(predicted - requested), indices),
        "mismatched_baseline": _mean_errors(np.abs(mismatched - requested), indices),
    }


def sklearn(module: str) -> Any:
    """Import a module of scikit-learn."""
    return import_extra(f"sklearn.{module}", "scikit-learn", "rdkit")


def _method_metrics(
    answers: Sequence[GeneratedMolecule],
    training_smiles: Collection[str],
    errors: _Errors,
    first_errors: _Errors | None,
) -> MethodMetrics:
    by_request: dict[int, set[str]] = {}
    by_turn: dict[int, list[str]] = {}
    for answer in answers:
        by_request.setdefault(answer.request, set()).add(answer.smiles or f"invalid: {answer.text}")
        if answer.smiles is not None:
            by_turn.setdefault(answer.turn, []).append(answer.smiles)
    molecules = [smiles for turn in by_turn.values() for smiles in turn]
    distinct = set(molecules)
    unique = [len(set(turn)) / len(turn) for turn in by_turn.values()]
    differences = None
    if first_errors is not None:
        differences = {key: error - first_errors[key] for key, error in errors.items() if key in first_errors}
    return MethodMetrics(
        method=answers[0].method,
        written=len(answers),
        valid=len(molecules) / len(answers),
        unique=sum(unique) / len(unique) if unique else None,
        novel=len(distinct.difference(training_smiles)) / len(distinct) if distinct else None,
        changed=sum(len(texts) > 1 for texts in by_request.values()) / len(by_request),
        errors=_by_property(errors),
        more_error=_by_property(differences),
    )


def _by_property(errors: _Errors | None) -> dict[str, MeanError] | None:
    if not errors:
        return None
    return _mean_errors(np.array(list(errors.values())), np.array([request for request, _ in errors]))


def _mean_errors(values: Floats, requests: NDArray[np.int64]) -> dict[str, MeanError]:
    """Return mean and interval per property of values (n, 6). The bootstrap resamples requests (n,)."""
    _, groups = np.unique(requests, return_inverse=True)
    num_groups = int(groups.max()) + 1
    sums = np.zeros((num_groups, values.shape[1]))
    np.add.at(sums, groups, values)
    sizes = np.bincount(groups)
    resampled = np.random.default_rng(0).integers(0, num_groups, (NUM_RESAMPLES, num_groups))
    means = sums[resampled].sum(1) / sizes[resampled].sum(1)[:, None]
    tail = (100 - CONFIDENCE) / 2
    low, high = np.percentile(means, [tail, 100 - tail], axis=0)
    return {
        name: MeanError(mean=mean, low=low[column], high=high[column], n=len(values))
        for column, (name, mean) in enumerate(zip(PROPERTIES, values.mean(0).tolist(), strict=True))
    }


# Descriptors, computed by RDKit


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
