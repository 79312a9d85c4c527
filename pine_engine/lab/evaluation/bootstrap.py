"""Bootstrap intervals of numbers without bounds, such as nats or seconds, from resampled examples.

All estimates of a task use one set of resamples. An interval is corrected for bias and skewness (BCa). Its
reach is that of Student's t, since resampled examples vary less than new ones. In simulations of 10 to 31
examples it contains the true value for 90 to 95 % of samples, plain percentiles for 85 to 93 %.

Sources: Efron 1987, "Better bootstrap confidence intervals"; Hesterberg 2015, "What teachers should know
about the bootstrap", for the reach.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pine_engine.lab.evaluation.intervals import MIN_EXAMPLES, NORMAL, Estimate, Floats, Z

NUM_RESAMPLES = 2000
SEED = 0

_CHUNK = 256  # number of resamples whose counts are float64 at a time: 10,000 examples then take 20 MB

Resamples = NDArray[np.uint16]  # number of times that each of n examples is in each of B resamples, (B, n)


def draw(num_examples: int, *, num_resamples: int = NUM_RESAMPLES, seed: int = SEED) -> Resamples:
    """Return resamples of all examples of a task.

    A subset does not keep its size. Resampled within itself a small subset hardly varies, and one of a single
    example does not vary.
    """
    generator = np.random.default_rng(seed)
    counts = np.zeros((num_resamples, num_examples), dtype=np.uint16)
    for start in range(0, num_resamples, _CHUNK):
        rows = min(_CHUNK, num_resamples - start)
        drawn = generator.integers(num_examples, size=(rows, num_examples))
        drawn += num_examples * np.arange(rows)[:, None]
        found = np.bincount(drawn.ravel(), minlength=rows * num_examples)
        counts[start : start + rows] = found.reshape(rows, num_examples)
    return counts


def totals(resamples: Resamples, values: Floats) -> Floats:
    """Return the sums over each resample, (B, m). values: (n, m), finite."""
    rows = np.flatnonzero(values.any(axis=1))  # a subset is a small part of all examples
    parts = [
        resamples[start : start + _CHUNK, rows].astype(np.float64) @ values[rows]
        for start in range(0, len(resamples), _CHUNK)
    ]
    return np.concatenate(parts)


def mean(values: Floats, resamples: Resamples, weights: Floats | None = None) -> Estimate | None:
    """Return the mean of values without bounds, None for no value; arguments as for `intervals.share`."""
    weights = np.ones(len(values)) if weights is None else weights
    return ratio(weights * values, np.where(np.isfinite(values), weights, np.nan), resamples)


def ratio(above: Floats, below: Floats, resamples: Resamples) -> Estimate | None:
    """Return the sum of `above` over the sum of `below`, which is not negative; None if that is zero.

    Both: (n,), NaN where an example has none. Fewer than MIN_EXAMPLES examples have no interval.
    """
    known = np.isfinite(above) & np.isfinite(below)
    over, under = np.where(known, above, 0.0), np.where(known, below, 0.0)
    if not under.sum() > 0:
        return None
    # Differences from the first ratio: where all ratios are equal, no rounding widens the interval.
    first = int(np.argmax(under > 0))
    start = over[first] / under[first]
    point = float(start + (over - start * under).sum() / under.sum())
    n = int(known.sum())
    if n < MIN_EXAMPLES:
        return Estimate(point, None, None, n)
    rest = over - point * under
    sums = totals(resamples, np.stack([over - start * under, under], axis=1))
    samples = start + sums[sums[:, 1] > 0, 0] / sums[sums[:, 1] > 0, 1]
    low, high = np.quantile(samples, _levels(point, samples, rest, n))
    # A quantile is between two samples, and rounding may move it past both.
    return Estimate(point, min(float(low), point), max(float(high), point), n)


def statistic(values: Floats, function: Callable[[Floats], Floats], resamples: Resamples) -> Estimate | None:
    """Return a function of the sums over examples with its interval, None where it is not defined.

    The effect of an example on skewness is that of leaving it out (jackknife).

    Args:
        values: Values of each example, (n, m), finite.
        function: Function from sums (..., m) to values (...); NaN where it is not defined.
        resamples: Resampled examples.
    """
    n, total = len(values), values.sum(axis=0)
    point = float(function(total))
    if math.isnan(point):
        return None
    samples = function(totals(resamples, values))
    samples = samples[np.isfinite(samples)]
    if n < MIN_EXAMPLES or not samples.size:
        return Estimate(point, None, None, n)
    influence = np.nan_to_num(point - function(total - values))
    low, high = np.quantile(samples, _levels(point, samples, influence, n))
    return Estimate(point, min(float(low), point), max(float(high), point), n)


def _levels(point: float, samples: Floats, influence: Floats, n: int) -> tuple[float, float]:
    """Return the quantiles that are the ends. influence: (n,), effect of each example, in any unit."""
    below = (np.count_nonzero(samples < point) + np.count_nonzero(samples == point) / 2) / len(samples)
    bias = NORMAL.inv_cdf(min(max(below, 0.5 / len(samples)), 1 - 0.5 / len(samples)))
    size = float((influence**2).sum()) ** 1.5
    skewness = float((influence**3).sum()) / (6 * size) if size else 0.0
    reach = math.sqrt(n / (n - 1)) * _student(n - 1)

    def level(z: float) -> float:
        lean = max(1 - skewness * (bias + z), 1e-9)  # one example may outweigh all others
        return NORMAL.cdf(bias + (bias + z) / lean)

    return level(-reach), level(reach)


def _student(freedom: int) -> float:
    """Return Student's t for Z, within 0.002 from 9 degrees of freedom on (Abramowitz and Stegun 26.7.5)."""
    return (
        Z
        + (Z**3 + Z) / (4 * freedom)
        + (5 * Z**5 + 16 * Z**3 + 3 * Z) / (96 * freedom**2)
        + (3 * Z**7 + 19 * Z**5 + 17 * Z**3 - 15 * Z) / (384 * freedom**3)
    )
