"""What written molecules are worth: are they molecules, do they differ, and do they have what was asked for.

A property's error is the distance between the value that was requested and the value that the predictor
gives the written molecule. What is no molecule has no properties: it is counted as invalid and left out of
the errors, so that a method must be judged by both.
"""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from pine_engine.molecules.descriptors import Floats
from pine_engine.molecules.predictor import Predictor
from pine_engine.molecules.rows import PROPERTIES, Molecule

if TYPE_CHECKING:
    from pine_engine.molecules.generate import WrittenMolecule

RESAMPLES = 1000
CONFIDENCE = 95
"""Percent."""


class Frozen(BaseModel):
    """A record that can be read from and written as JSON."""

    model_config = ConfigDict(frozen=True)


class MeanError(Frozen):
    """A mean over n values, with the bounds of its 95 % interval by the bootstrap over requests."""

    mean: float
    low: float
    high: float
    n: int


class MethodMetrics(Frozen):
    """One method.

    written: number of answers. valid: share that are molecules. unique: share of different ones among these,
    in one order of each request's properties; the mean over the orders. novel: share of the different ones of
    all orders that no training data had. changed: share of requests whose
    molecule, or invalid text, is not the same in all orders. errors: mean absolute error per property, None
    if there is no valid molecule. more_error: per property by how much the error is above that of the first
    method, paired over what both answered with a molecule; None for the first method.
    """

    method: str
    written: int
    valid: float
    unique: float | None
    novel: float | None
    changed: float
    errors: dict[str, MeanError] | None
    more_error: dict[str, MeanError] | None


class References(Frozen):
    """Errors of molecules that no model wrote, per property.

    predictor: of the data's own molecules, which have what was asked for; it is the error of the predictor
    itself. strangers: of the molecule of another request; a model that ignores its request is no better.
    """

    predictor: dict[str, MeanError]
    strangers: dict[str, MeanError]


def judge(
    written: Sequence["WrittenMolecule"],
    requests: Sequence[Molecule],
    predictor: Predictor,
    known: Collection[str],
) -> list[MethodMetrics]:
    """Each method's molecules against what was requested; known: canonical SMILES of all training data."""
    distinct = sorted({one.smiles for one in written if one.smiles is not None})
    predicted = dict(zip(distinct, predictor.predict(distinct), strict=True))
    asked = np.array([molecule.properties for molecule in requests])
    absolute: dict[str, dict[tuple[int, tuple[int, ...]], Floats]] = {}
    for one in written:
        errors = absolute.setdefault(one.method, {})
        if one.smiles is not None:
            errors[one.request, one.order] = np.abs(predicted[one.smiles] - asked[one.request])
    first = next(iter(absolute))
    return [
        _judge_method(
            [one for one in written if one.method == method],
            known,
            errors,
            None if method == first else absolute[first],
        )
        for method, errors in absolute.items()
    ]


def references(requests: Sequence[Molecule], predictor: Predictor) -> References:
    """What to compare errors with; every molecule is the stranger of one other request."""
    predicted = predictor.predict([molecule.smiles for molecule in requests])
    asked = np.array([molecule.properties for molecule in requests])
    places = np.arange(len(requests))
    # Drawn, since neighbours in a data set are often alike.
    circle = np.random.default_rng(0).permutation(len(requests))
    strangers = np.empty_like(predicted)
    strangers[circle] = predicted[np.roll(circle, 1)]
    return References(
        predictor=_estimates(np.abs(predicted - asked), places),
        strangers=_estimates(np.abs(strangers - asked), places),
    )


def _judge_method(
    written: Sequence["WrittenMolecule"],
    known: Collection[str],
    errors: dict[tuple[int, tuple[int, ...]], Floats],
    of_first: dict[tuple[int, tuple[int, ...]], Floats] | None,
) -> MethodMetrics:
    molecules = [one.smiles for one in written if one.smiles is not None]
    distinct = set(molecules)
    said: dict[int, set[str]] = {}
    for one in written:
        said.setdefault(one.request, set()).add(one.smiles or f"invalid: {one.text}")
    more_error = None
    if of_first is not None:
        both = [key for key in errors if key in of_first]
        more_error = _estimates_of({key: errors[key] - of_first[key] for key in both})
    return MethodMetrics(
        method=written[0].method,
        written=len(written),
        valid=len(molecules) / len(written),
        unique=_unique(written),
        novel=len(distinct.difference(known)) / len(distinct) if distinct else None,
        changed=sum(len(texts) > 1 for texts in said.values()) / len(said),
        errors=_estimates_of(errors),
        more_error=more_error,
    )


def _unique(written: Sequence["WrittenMolecule"]) -> float | None:
    """See MethodMetrics; None if no order has a valid molecule."""
    turns: dict[int, list[str]] = {}
    for one in written:
        if one.smiles is not None:
            turns.setdefault(one.turn, []).append(one.smiles)
    shares = [len(set(molecules)) / len(molecules) for molecules in turns.values()]
    return sum(shares) / len(shares) if shares else None


def _estimates_of(errors: dict[tuple[int, tuple[int, ...]], Floats]) -> dict[str, MeanError] | None:
    if not errors:
        return None
    return _estimates(np.array(list(errors.values())), np.array([request for request, _ in errors]))


def _estimates(values: Floats, requests: NDArray[np.int64]) -> dict[str, MeanError]:
    """values: (n, 6). requests: (n,), to which each belongs; those of one request are drawn together."""
    _, places = np.unique(requests, return_inverse=True)
    count = int(places.max()) + 1
    sums = np.zeros((count, values.shape[1]))
    np.add.at(sums, places, values)
    sizes = np.bincount(places)
    drawn = np.random.default_rng(0).integers(0, count, (RESAMPLES, count))
    means = sums[drawn].sum(1) / sizes[drawn].sum(1)[:, None]
    tail = (100 - CONFIDENCE) / 2
    low, high = np.percentile(means, [tail, 100 - tail], axis=0)
    return {
        name: MeanError(mean=mean, low=low[column], high=high[column], n=len(values))
        for column, (name, mean) in enumerate(zip(PROPERTIES, values.mean(0).tolist(), strict=True))
    }
