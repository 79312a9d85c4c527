"""Metrics of generated molecules: validity, diversity, and errors of their predicted properties.

The error of a property is the distance between the requested value and the value predicted for the generated
molecule. Invalid answers have no properties and no errors, so read errors together with validity.
"""

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from pine_engine.lab.molecules.descriptors import Floats
from pine_engine.lab.molecules.predictor import Predictor
from pine_engine.lab.molecules.request_rows import PROPERTIES, GeneratedMolecule, Molecule

NUM_RESAMPLES = 1000
CONFIDENCE = 95  # confidence level of the intervals, in percent

_Errors = dict[tuple[int, tuple[int, ...]], Floats]  # errors of the six properties by request and order


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
