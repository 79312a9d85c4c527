"""Intervals: published values, coverage in simulations, and properties of estimates without enough data."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from pine_engine.evaluation.bootstrap import draw, mean, ratio, totals
from pine_engine.evaluation.intervals import MIN_EXAMPLES, Estimate, share
from pine_engine.evaluation.slots import OVER_ORDERS
from tests.support.records import judged
from tests.support.report_runs import task_of

FEW = 200
"""Number of resamples in tests of other properties than the interval."""

Values = NDArray[np.float64]
Sample = Callable[[np.random.Generator], Values]


def ends(estimate: Estimate | None) -> tuple[float, float]:
    assert estimate is not None and estimate.interval is not None
    low, high = estimate.interval
    assert low <= estimate.mean <= high
    return low, high


def coverage(
    sample: Sample, truth: float, interval: Callable[[Values], Estimate | None], trials: int = 400
) -> float:
    """Return the share of samples whose interval contains the truth; 400 have an error of 2 points."""
    generator = np.random.default_rng(1)
    found = [ends(interval(sample(generator))) for _ in range(trials)]
    return sum(low <= truth + 1e-9 and truth - 1e-9 <= high for low, high in found) / trials


@pytest.mark.parametrize(
    ("right", "count", "expected"),
    [
        (0, 1, (0.0, 0.7935)),
        (1, 10, (0.0179, 0.4042)),
        (31, 31, (0.8897, 1.0)),
        # Newcombe 1998, table I; those above are computed from the formula.
        (81, 263, (0.2553, 0.3662)),
        (15, 148, (0.0624, 0.1605)),
        (0, 20, (0.0, 0.1611)),
        (1, 29, (0.0061, 0.1718)),
    ],
)
def test_interval_of_proportion_is_wilsons(right: int, count: int, expected: tuple[float, float]) -> None:
    values = np.array([1.0] * right + [0.0] * (count - right))
    assert ends(share(values)) == pytest.approx(expected, abs=5e-5)


@pytest.mark.parametrize("count", [1, 2, 7, 31])
@pytest.mark.parametrize(
    ("kind", "first", "second"),
    [("orders", 1.0, 1.0), ("orders", 2.0, 40.0), ("orders", 40.0, 2.0), ("verdicts", 0.02, 0.95),
     ("verdicts", 0.0, 0.3), ("differences", 0.3, 0.3), ("differences", 0.02, 0.95)],
)  # fmt: skip
def test_share_of_examples_is_covered(count: int, kind: str, first: float, second: float) -> None:
    """Means over ten orders with a probability per example, and three values with other probabilities."""
    if kind == "orders":
        truth = first / (first + second)
        found = coverage(
            lambda draws: draws.binomial(10, draws.beta(first, second, size=count)) / 10, truth, share
        )
    else:
        minimum = -1.0 if kind == "differences" else 0.0
        values, odds = np.linspace(minimum, 1, 3), np.array([first, 1 - first - second, second])
        interval = partial(share, minimum=minimum)
        found = coverage(
            lambda draws: draws.choice(values, p=odds, size=count), float(values @ odds), interval
        )
    assert found > 0.93


def test_share_interval_is_narrower_for_similar_values() -> None:
    samples = (np.array([0.0, 1.0] * 16), np.array([0.4, 0.6] * 16), np.full(32, 0.5))
    widths = [high - low for low, high in (ends(share(values)) for values in samples)]
    assert widths[0] > 2 * widths[1] > 2 * widths[2] > 0.1


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=30),
    st.lists(st.floats(0.1, 9), min_size=30, max_size=30),
    st.sampled_from([(0.0, 1.0), (-1.0, 1.0), (-1.0, 2.0)]),
)
def test_interval_of_share_is_within_bounds_and_symmetric(
    values: list[float], weights: list[float], bounds: tuple[float, float]
) -> None:
    minimum, maximum = bounds
    each = np.array(weights[: len(values)])
    estimate = share(np.array(values), each, minimum=minimum, maximum=maximum)
    low, high = ends(estimate)
    assert estimate is not None and estimate.num_examples == len(values)
    assert estimate.mean == pytest.approx(float(np.average(values, weights=each)))
    assert minimum <= low <= high <= maximum and high - low > 0.05
    mirrored = share(-np.array(values), each, minimum=-maximum, maximum=-minimum)
    assert ends(mirrored) == pytest.approx((-high, -low), abs=1e-9)
    assert estimate.negative().interval == (-high, -low)


def test_example_without_value_is_not_counted() -> None:
    assert share(np.array([np.nan, 1.0, 0.0, 1.0])) == share(np.array([1.0, 0.0, 1.0]))
    assert share(np.array([np.nan])) is None and share(np.array([])) is None
    drawn = draw(3, num_resamples=FEW)
    assert mean(np.array([np.nan, 2.0, 2.0]), drawn) == Estimate(2, None, None, 2)
    assert mean(np.array([np.nan]), draw(1, num_resamples=FEW)) is None


@pytest.mark.parametrize("count", [10, 31])
@pytest.mark.parametrize("kind", ["normal", "gamma", "lognormal", "ratio"])
def test_bootstrap_interval_is_covered(kind: str, count: int) -> None:
    """Means of nats, and a ratio of seconds that vary much more between the examples."""
    drawn = draw(count, num_resamples=1000)

    def sample(generator: np.random.Generator) -> Values:
        below = generator.gamma(4, size=count)
        samples = {
            "normal": generator.normal(size=count),
            "gamma": -generator.gamma(3, size=count),
            "lognormal": generator.lognormal(0, 0.8, size=count),
            "ratio": np.stack([below, below * generator.lognormal(math.log(2) - 0.02, 0.2, size=count)]),
        }
        return samples[kind]

    def interval(values: Values) -> Estimate | None:
        return ratio(values[1], values[0], drawn) if kind == "ratio" else mean(values, drawn)

    truth = {"normal": 0.0, "gamma": -3.0, "lognormal": math.exp(0.32), "ratio": 2.0}[kind]
    assert coverage(sample, truth, interval) > 0.88


@pytest.mark.slow
@pytest.mark.parametrize("subsets", [20, 5])
def test_small_subsets_do_not_narrow_an_interval(subsets: int) -> None:
    """Coverage over all pairs, and over the section of the subsets."""

    def interval(values: Values, labels: Sequence[str]) -> Estimate | None:
        blank: dict[str, Any] = {"text": None, "parsed": None, "score": None}
        records = [
            judged(f"p-{n}", "vanilla", "as-is", "A", section="Chat", subset=f"s-{n % subsets}")
            .model_copy(update=blank | {"answer_logprob": value})
            for n, value in enumerate(values.tolist())
        ]  # fmt: skip
        return task_of(records).get("vanilla", "logprob", *labels)

    for labels in (["mean"], ["section", OVER_ORDERS, "Chat"]):
        covered = partial(interval, labels=labels)
        assert coverage(lambda generator: generator.normal(size=20), 0.0, covered, trials=200) > 0.91


@pytest.mark.parametrize("count", [1, MIN_EXAMPLES - 1])
def test_fewer_than_ten_examples_have_no_interval(count: int) -> None:
    drawn = draw(count, num_resamples=FEW)
    values, ones = np.arange(count, dtype=np.float64) - 4.0, np.ones(count)
    for estimate in (mean(values, drawn), ratio(ones, ones, drawn)):
        assert estimate is not None and estimate.interval is None and estimate.num_examples == count
        assert estimate.negative().interval is None


@given(st.lists(st.floats(-1e3, 1e3), min_size=MIN_EXAMPLES, max_size=30), st.integers(0, 5))
def test_bootstrap_interval_lies_within_the_values(values: list[float], seed: int) -> None:
    drawn = draw(len(values), num_resamples=FEW, seed=seed)
    estimate = mean(np.array(values), drawn)
    low, high = ends(estimate)
    assert estimate is not None
    assert estimate.mean == pytest.approx(math.fsum(values) / len(values), abs=1e-9)
    slack = 1e-9 * max(1.0, *map(abs, values))
    assert min(values) - slack <= low <= high <= max(values) + slack
    equal = np.full(len(values), values[0])
    assert mean(equal, drawn) == Estimate(values[0], values[0], values[0], len(values))


def test_interval_follows_the_formula_of_efron() -> None:
    """Efron 1987 with one resample after another; the reach is that of Student's t."""
    values = np.random.default_rng(3).exponential(size=40)
    other = np.random.default_rng(4)
    means = np.sort([other.choice(values, size=40).mean() for _ in range(20_000)])
    normal = NormalDist()
    bias = normal.inv_cdf(float(np.mean(means < values.mean())))
    centred = values - values.mean()
    lean = (centred**3).sum() / (6 * (centred**2).sum() ** 1.5)
    expected = []
    for student in (-2.0227, 2.0227):  # of 39 degrees of freedom
        z = bias + student * math.sqrt(40 / 39)
        expected.append(float(np.quantile(means, normal.cdf(bias + z / (1 - lean * z)))))
    assert ends(mean(values, draw(40, num_resamples=20_000))) == pytest.approx(expected, abs=0.01)


def test_resamples_are_drawn_with_replacement_and_by_seed() -> None:
    """Draws of the last of four examples: binomial(4, 1/4)."""
    drawn = draw(4, num_resamples=4000)
    shares = np.bincount(drawn[:, 3], minlength=5) / 4000
    assert shares == pytest.approx([math.comb(4, i) * 3 ** (4 - i) / 256 for i in range(5)], abs=0.03)
    assert np.array_equal(drawn, draw(4, num_resamples=4000))
    assert not np.array_equal(drawn, draw(4, num_resamples=4000, seed=1))
    values = np.random.default_rng(1).normal(size=(4, 3))
    assert totals(drawn, values) == pytest.approx(drawn.astype(float) @ values)
    assert set(drawn.sum(axis=1)) == {4}


def test_ratio_is_that_of_the_sums() -> None:
    drawn = np.ones((2, 2), dtype=np.uint16)
    assert ratio(np.array([6.0, 2.0]), np.array([1.0, 1.0]), drawn) == Estimate(4, None, None, 2)
    assert ratio(np.zeros(2), np.zeros(2), drawn) is None
