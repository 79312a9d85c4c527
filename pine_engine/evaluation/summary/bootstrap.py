"""How sure a number without bounds is, such as nats or seconds: intervals from resampled examples.

Everything of one task is computed on the same resamples. An interval is corrected for bias and skewness
(BCa), and reaches as far as Student's t does, since examples that are resampled vary less than new ones. In
simulations it contains the truth for 90 to 95 % of samples of 10 to 31 examples, skewed ones among them;
plain percentiles do for 85 to 93 %.

Sources: Efron 1987, "Better bootstrap confidence intervals"; Hesterberg 2015, "What teachers should know
about the bootstrap", for the reach.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from pine_engine.evaluation.summary.intervals import FEWEST, Estimate, Floats, Z

RESAMPLES = 2000
SEED = 0

_AT_ONCE = 256
"""Resamples whose counts are float64 at a time: 10,000 examples then take 20 MB."""

_NORMAL = NormalDist()


@dataclass(frozen=True)
class Resamples:
    """counts: (B, n), how often each of n examples stands in each of B resamples, as many as there are."""

    counts: NDArray[np.uint16]

    def totals(self, values: Floats) -> Floats:
        """(B, m): sums over each resample. values: (n, m), finite."""
        rows = np.flatnonzero(values.any(axis=1))  # a subset is a small part of all examples
        parts = [
            self.counts[start : start + _AT_ONCE, rows].astype(np.float64) @ values[rows]
            for start in range(0, len(self.counts), _AT_ONCE)
        ]
        return np.concatenate(parts)


def draw(count: int, *, resamples: int = RESAMPLES, seed: int = SEED) -> Resamples:
    """Resamples of so many examples, all together.

    A subset does not keep its size: resampled within itself a small one hardly varies, and one of a single
    example not at all.
    """
    generator = np.random.default_rng(seed)
    counts = np.zeros((resamples, count), dtype=np.uint16)
    for start in range(0, resamples, _AT_ONCE):
        rows = min(_AT_ONCE, resamples - start)
        drawn = generator.integers(count, size=(rows, count)) + count * np.arange(rows)[:, None]
        counts[start : start + rows] = np.bincount(drawn.ravel(), minlength=rows * count).reshape(rows, count)
    return Resamples(counts)


def mean(values: Floats, drawn: Resamples, weights: Floats | None = None) -> Estimate | None:
    """The mean of the values; None for no value. As for intervals.share, but without bounds."""
    weights = np.ones(len(values)) if weights is None else weights
    return ratio(weights * values, np.where(np.isfinite(values), weights, np.nan), drawn)


def ratio(above: Floats, below: Floats, drawn: Resamples) -> Estimate | None:
    """The sum of `above` over that of `below`, which is not negative; None if that is zero.

    Both: (n,), NaN where an example has none. No interval for fewer than FEWEST examples.
    """
    known = np.isfinite(above) & np.isfinite(below)
    over, under = np.where(known, above, 0.0), np.where(known, below, 0.0)
    if not under.sum() > 0:
        return None
    # Differences from the first ratio: where all are equal, so is each resample, and no rounding widens it.
    first = int(np.argmax(under > 0))
    start = over[first] / under[first]
    point = float(start + (over - start * under).sum() / under.sum())
    n = int(known.sum())
    if n < FEWEST:
        return Estimate(mean=point, low=None, high=None, n=n)
    rest = over - point * under
    totals = drawn.totals(np.stack([over - start * under, under], axis=1))
    samples = start + totals[totals[:, 1] > 0, 0] / totals[totals[:, 1] > 0, 1]
    low, high = np.quantile(samples, _levels(point, samples, rest, n))
    # A quantile lies between two samples, and rounding may put it past both.
    return Estimate(mean=point, low=min(float(low), point), high=max(float(high), point), n=n)


def _levels(point: float, samples: Floats, influence: Floats, n: int) -> tuple[float, float]:
    """Which quantiles of the samples are the ends. influence: (n,), what each example moves, in any unit."""
    below = (np.count_nonzero(samples < point) + np.count_nonzero(samples == point) / 2) / len(samples)
    bias = _NORMAL.inv_cdf(min(max(below, 0.5 / len(samples)), 1 - 0.5 / len(samples)))
    size = float((influence**2).sum()) ** 1.5
    skewness = float((influence**3).sum()) / (6 * size) if size else 0.0
    reach = math.sqrt(n / (n - 1)) * _student(n - 1)

    def level(z: float) -> float:
        lean = max(1 - skewness * (bias + z), 1e-9)  # one example may outweigh all others
        return _NORMAL.cdf(bias + (bias + z) / lean)

    return level(-reach), level(reach)


def _student(freedom: int) -> float:
    """The quantile of Student's t that belongs to Z, within 0.002 from 9 degrees of freedom on.

    Source: Abramowitz and Stegun 26.7.5.
    """
    return (
        Z
        + (Z**3 + Z) / (4 * freedom)
        + (5 * Z**5 + 16 * Z**3 + 3 * Z) / (96 * freedom**2)
        + (3 * Z**7 + 19 * Z**5 + 17 * Z**3 - 15 * Z) / (384 * freedom**3)
    )
