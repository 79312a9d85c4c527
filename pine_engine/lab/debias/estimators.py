"""Corrections of label probabilities that are learned from samples in several orders (specification, 8.1).

Sources: Zheng et al. 2024, chujiezheng/LLM-MCQ-Bias (PriDe); Li et al. 2025, CSHaitao/CalibraEval.
"""

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

EPSILON = 1e-10  # added to probabilities before their logarithm, as in the released code of PriDe

SPREAD_WEIGHT = 0.05  # of the term that keeps the curve from being constant, as in the released code
STEP_SIZE = 0.25  # of gradient descent, times the number of increments, which makes it independent of them
NUM_STEPS = 30  # few, because the curve of least loss is almost a step, and gives ties
NUM_DIGITS = 8  # of the probabilities of a curve


def softmax(logs: Sequence[float]) -> tuple[float, ...]:
    """Return probabilities with sum 1 from unnormalized log-probabilities."""
    largest = max(logs)
    weights = [math.exp(value - largest) for value in logs]
    return tuple(weight / math.fsum(weights) for weight in weights)


class Correction(Protocol):
    """Correction of label probabilities, learned from samples."""

    @property
    def prior(self) -> tuple[float, ...]:
        """Probabilities of the labels that are corrected to equal ones, with sum 1."""

    def correct(self, observed: Sequence[float]) -> tuple[float, ...]:
        """Return corrected probabilities of the labels, with sum 1."""


@dataclass(frozen=True)
class MeanPrior:
    """Correction of PriDe: softmax of ln(observed + EPSILON) - ln(prior + EPSILON)."""

    prior: tuple[float, ...]

    @classmethod
    def fit(cls, samples: Sequence[Sequence[float]]) -> "MeanPrior":
        """Return the mean of the priors of several samples."""
        return cls(tuple(math.fsum(place) / len(samples) for place in zip(*samples, strict=True)))

    def correct(self, observed: Sequence[float]) -> tuple[float, ...]:
        """Divide probabilities by the prior."""
        return softmax(list(map(operator.sub, _logs(observed), _logs(self.prior))))


def pride_prior(runs: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Return the prior of one sample: softmax of the mean over its runs of ln(observed + EPSILON)."""
    logs = list(map(_logs, runs))
    return softmax([math.fsum(place) / len(logs) for place in zip(*logs, strict=True)])


def _logs(probabilities: Iterable[float]) -> list[float]:
    return [math.log(value + EPSILON) for value in probabilities]


@dataclass(frozen=True)
class CalibrationCurve:
    """Correction of CalibraEval: an increasing function of the probability of the first of two labels.

    Attributes:
        probabilities: Distinct probabilities of the samples, rounded, ascending, between -0.1 and 1.1.
        levels: Corrected probabilities, from 0 to 1; linear in between.
    """

    probabilities: tuple[float, ...]
    levels: tuple[float, ...]

    @classmethod
    def fit(cls, samples: Sequence[Sequence[float]]) -> "CalibrationCurve":
        """Return the curve after NUM_STEPS steps of gradient descent from equal increments.

        The loss is the mean of (p + q - 1)² - SPREAD_WEIGHT (p - q)² over the samples, with the corrected
        probabilities p and q of the first label in both orders: without bias, p + q = 1. The parameters are
        logarithms of the increments, so that the curve increases.

        samples: probability of the first label in both orders of the documents of each sample.
        """
        # Between nearer probabilities the curve would be too steep to be read in float64.
        rounded = np.array(samples, dtype=np.float64).round(NUM_DIGITS)
        values, places = np.unique(rounded, return_inverse=True)
        first, second = places.reshape(-1, 2).T
        weights = np.zeros(len(values) + 1)
        increments = np.full_like(weights, 1 / len(weights))
        for _ in range(NUM_STEPS):
            levels = increments.cumsum()
            total, spread = levels[first] + levels[second] - 1, levels[first] - levels[second]
            slopes = np.zeros_like(weights)  # derivative of the loss by each level
            np.add.at(slopes, first, 2 * (total - SPREAD_WEIGHT * spread) / len(samples))
            np.add.at(slopes, second, 2 * (total + SPREAD_WEIGHT * spread) / len(samples))
            gradient = increments * (slopes[::-1].cumsum()[::-1] - slopes @ levels)
            weights -= STEP_SIZE * len(weights) * gradient
            increments = np.exp(weights) / np.exp(weights).sum()
        return cls((-0.1, *values.tolist(), 1.1), (0.0, *increments[:-1].cumsum().tolist(), 1.0))

    @property
    def prior(self) -> tuple[float, ...]:
        """Probabilities that are corrected to one half each."""
        neutral = float(np.interp(0.5, self.levels, self.probabilities))
        return neutral, 1 - neutral

    def correct(self, observed: Sequence[float]) -> tuple[float, ...]:
        """Read the probability of the first label from the curve."""
        level = float(np.interp(observed[0], self.probabilities, self.levels))
        return level, 1 - level


def first_label(runs: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Return the probability of the first label in each run of a sample."""
    return tuple(run[0] for run in runs)


@dataclass(frozen=True)
class Estimator:
    """Estimator of a correction.

    Attributes:
        learn: Returns one number per label from the probabilities of the labels in each run of a sample.
        fit: Returns the correction from these numbers of several samples.
    """

    learn: Callable[[Sequence[Sequence[float]]], tuple[float, ...]]
    fit: Callable[[Sequence[Sequence[float]]], Correction]


ESTIMATORS = {
    "pride": Estimator(pride_prior, MeanPrior.fit),
    "calibraeval": Estimator(first_label, CalibrationCurve.fit),
}
"""Estimators by their name in the column `estimator` of wrappers.toml."""
