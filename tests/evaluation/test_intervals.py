"""Intervals contain the truth about as often as they say: proportions exactly, all else in simulations."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from pine_engine.evaluation.bootstrap import Resamples, _student, draw, mean, ratio
from pine_engine.evaluation.intervals import MIN_EXAMPLES, Estimate, share
from pine_engine.evaluation.judge_scenarios import OVER_ORDERS
from tests.support.records import judged
from tests.support.report_runs import task_of

FEW = 200
"""Resamples where the interval itself is not asked about."""

TRIALS = 2000
"""Samples of a simulation: a coverage of 95 % is then found within 1.5 points."""

Values = NDArray[np.float64]


def ends(estimate: Estimate | None) -> tuple[float, float]:
    assert estimate is not None and estimate.interval is not None
    low, high = estimate.interval
    assert low <= estimate.mean <= high
    return low, high


# shares


@pytest.mark.parametrize(
    ("right", "count", "expected"),
    [
        (0, 1, (0.0, 0.7935)),
        (1, 1, (0.2065, 1.0)),
        (0, 7, (0.0, 0.3543)),
        (1, 10, (0.0179, 0.4042)),
        (15, 50, (0.1910, 0.4375)),
        (31, 31, (0.8897, 1.0)),
        (81, 263, (0.2553, 0.3662)),
        (15, 148, (0.0624, 0.1605)),
        (0, 20, (0.0, 0.1611)),
        (1, 29, (0.0061, 0.1718)),
    ],
)
def test_a_proportion_has_the_interval_that_wilson_gives(
    right: int, count: int, expected: tuple[float, float]
) -> None:
    """The last four are in Newcombe 1998, table I; the others are worked from the formula."""
    values = np.array([1.0] * right + [0.0] * (count - right))
    assert ends(share(values)) == pytest.approx(expected, abs=5e-5)


@given(st.integers(1, 60), st.data())
def test_its_ends_are_the_proportions_at_z_standard_errors(count: int, data: st.DataObject) -> None:
    """The definition, of which the formula is the solution."""
    right = data.draw(st.integers(0, count))
    values = np.array([1.0] * right + [0.0] * (count - right))
    z = NormalDist().inv_cdf(0.975)
    for end in ends(share(values)):
        if 0 < end < 1:
            error = math.sqrt(end * (1 - end) / count)
            assert abs(right / count - end) == pytest.approx(z * error, abs=1e-9)


def coverage_of_proportion(interval: Callable[[Values], tuple[float, float]], count: int, p: float) -> float:
    """Exactly: the probability of each number of ones whose interval contains p."""
    total = 0.0
    for right in range(count + 1):
        low, high = interval(np.array([1.0] * right + [0.0] * (count - right)))
        if low - 1e-12 <= p <= high + 1e-12:
            total += math.comb(count, right) * p**right * (1 - p) ** (count - right)
    return total


@pytest.mark.parametrize("count", [1, 2, 7, 31])
def test_the_interval_of_a_proportion_contains_it_as_often_as_it_says(count: int) -> None:
    """On average over all proportions; at the worst one, which lies near 0 and 1, four times in five."""
    grid = np.linspace(0, 1, 401)
    found = [coverage_of_proportion(lambda values: ends(share(values)), count, p) for p in grid]
    assert 0.945 < float(np.mean(found)) < 0.965
    assert min(found) > 0.79
    assert {found[0], found[-1]} == {1.0}


def coverage(
    sample: Callable[[np.random.Generator], Values],
    truth: float,
    interval: Callable[[Values], Estimate | None],
    trials: int = TRIALS,
) -> float:
    generator = np.random.default_rng(1)
    return sum(
        low <= truth + 1e-9 and truth - 1e-9 <= high
        for low, high in (ends(interval(sample(generator))) for _ in range(trials))
    ) / trials  # fmt: skip


ODDS = ((0.05, 0.9, 0.05), (0.3, 0.4, 0.3), (0.02, 0.03, 0.95), (0.0, 1.0, 0.0))
ORDERS = ((2, 1.0, 1.0), (3, 0.2, 1.0), (10, 2.0, 40.0), (10, 40.0, 2.0))


def draw_means(generator: np.random.Generator, n: int, orders: int, alpha: float, beta: float) -> Values:
    return generator.binomial(orders, generator.beta(alpha, beta, size=n)) / orders


def draw_verdicts(generator: np.random.Generator, n: int, *odds: float) -> Values:
    return generator.choice([0.0, 0.5, 1.0], p=odds, size=n)


@pytest.mark.parametrize("count", [1, 2, 7, 31])
@pytest.mark.parametrize(
    ("sample", "options", "truth"),
    [
        *((draw_means, one, one[1] / (one[1] + one[2])) for one in ORDERS),
        *((draw_verdicts, one, one[1] / 2 + one[2]) for one in ODDS),
    ],
)
def test_shares_are_covered(
    count: int, sample: Callable[..., Values], options: tuple[float, ...], truth: float
) -> None:
    """Examples in several orders, with their own probabilities, and verdicts that count half."""
    assert coverage(lambda generator: sample(generator, count, *options), truth, share) > 0.93


@pytest.mark.parametrize("count", [1, 2, 7, 31])
@pytest.mark.parametrize("odds", [(0.1, 0.8, 0.1), (0.01, 0.98, 0.01), (0.0, 0.7, 0.3), (0.4, 0.2, 0.4)])
def test_paired_differences_are_covered(count: int, odds: tuple[float, float, float]) -> None:
    """Odds of two methods on one example: right for one alone, equal, right for the other alone."""

    def sample(generator: np.random.Generator) -> Values:
        return generator.choice([-1.0, 0.0, 1.0], p=odds, size=count)

    assert coverage(sample, odds[2] - odds[0], lambda values: share(values, minimum=-1.0)) > 0.93


@pytest.mark.parametrize(
    ("sizes", "weights", "right"),
    [
        ((5, 5, 5), (984, 164, 164), (0.9, 0.5, 0.5)),
        ((1, 1, 1, 1, 1, 1), (100, 95, 95, 28, 40, 37), (0.9, 0.9, 0.8, 0.9, 0.7, 0.5)),
        ((50, 20, 10), (100, 100, 984), (0.5, 0.9, 0.02)),
        ((2, 3), (1, 1), (0.6, 0.3)),
        ((30, 30, 30, 30), (1, 1, 1, 1), (0.95, 0.5, 0.7, 0.8)),
    ],
)
def test_sections_with_weights_are_covered(
    sizes: tuple[int, ...], weights: tuple[float, ...], right: tuple[float, ...]
) -> None:
    each = np.repeat([weight / size for weight, size in zip(weights, sizes, strict=True)], sizes)
    truth = sum(w * p for w, p in zip(weights, right, strict=True)) / sum(weights)

    def sample(generator: np.random.Generator) -> Values:
        return (generator.random(sum(sizes)) < np.repeat(right, sizes)).astype(float)

    assert coverage(sample, truth, lambda values: share(values, each)) > 0.93


def test_values_that_vary_less_have_a_narrower_interval() -> None:
    """Means over ten orders are worth more than one verdict each, and more so the less they differ."""
    one = np.array([0.0, 1.0] * 16)
    several = np.array([0.4, 0.6] * 16)
    alike = np.full(32, 0.5)
    widths = [high - low for low, high in map(ends, (share(one), share(several), share(alike)))]
    assert widths[0] > 2 * widths[1] > 2 * widths[2] > 0.1


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=30),
    st.lists(st.floats(0.1, 9), min_size=30, max_size=30),
    st.sampled_from([(0.0, 1.0), (-1.0, 1.0), (-1.0, 2.0)]),
)
def test_an_interval_holds_the_mean_and_has_a_width(
    values: list[float], weights: list[float], bounds: tuple[float, float]
) -> None:
    least, most = bounds
    each = np.array(weights[: len(values)])
    estimate = share(np.array(values), each, minimum=least, maximum=most)
    low, high = ends(estimate)
    assert estimate is not None and estimate.num_examples == len(values)
    assert estimate.mean == pytest.approx(float(np.average(values, weights=each)))
    assert least <= low <= high <= most and high - low > 0.05
    mirrored = share(-np.array(values), each, minimum=-most, maximum=-least)
    assert ends(mirrored) == pytest.approx((-high, -low), abs=1e-9)
    assert estimate.negative().interval == (-high, -low)


def test_an_example_without_a_value_does_not_count() -> None:
    assert share(np.array([np.nan, 1.0, 0.0, 1.0])) == share(np.array([1.0, 0.0, 1.0]))
    assert share(np.array([np.nan])) is None and share(np.array([])) is None
    drawn = draw(3, num_resamples=FEW)
    assert mean(np.array([np.nan, 2.0, 2.0]), drawn) == Estimate(2, None, None, 2)
    assert mean(np.array([np.nan]), draw(1, num_resamples=FEW)) is None


# what has no bounds


DISTRIBUTIONS: dict[str, tuple[Callable[[np.random.Generator, int], Values], float]] = {
    "normal": (lambda generator, n: generator.normal(size=n), 0.0),
    "exponential": (lambda generator, n: generator.exponential(size=n), 1.0),
    "minus gamma": (lambda generator, n: -generator.gamma(3, size=n), -3.0),
    "lognormal": (lambda generator, n: generator.lognormal(0, 0.8, size=n), math.exp(0.32)),
}


@pytest.mark.parametrize("count", [10, 31])
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_a_mean_of_nats_is_covered(name: str, count: int) -> None:
    distribution, truth = DISTRIBUTIONS[name]
    drawn = draw(count, num_resamples=1000)

    def sample(generator: np.random.Generator) -> Values:
        return distribution(generator, count)

    assert coverage(sample, truth, lambda values: mean(values, drawn), trials=600) > 0.88


@pytest.mark.parametrize(("freedom", "quantile"), [(30, 2.0422725), (39, 2.0226909)])
def test_reach_is_that_of_student(freedom: int, quantile: float) -> None:
    """With the next term of the series (Abramowitz and Stegun 26.7.5) it agrees with tables."""
    z = NormalDist().inv_cdf(0.975)
    rest = (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / (92160 * freedom**4)
    assert _student(freedom) + rest == pytest.approx(quantile, abs=3e-7)


@pytest.mark.slow
@pytest.mark.parametrize("subsets", [20, 5])
def test_small_subsets_do_not_narrow_an_interval(subsets: int) -> None:
    """Coverage over all pairs, and over the section of the subsets."""
    pairs = [
        judged(f"p-{index}", "vanilla", "as-is", "A", section="Chat", subset=f"s-{index % subsets}")
        for index in range(20)
    ]

    def interval(values: Values, labels: Sequence[str]) -> Estimate | None:
        records = [
            pair.model_copy(update={"text": None, "parsed": None, "score": None, "answer_logprob": value})
            for pair, value in zip(pairs, values.tolist(), strict=True)
        ]
        return task_of(records).get("vanilla", "logprob", *labels)

    for labels in (["mean"], ["section", OVER_ORDERS, "Chat"]):
        found = coverage(
            lambda generator: generator.normal(size=20),
            0.0,
            partial(interval, labels=labels),
            trials=200,
        )
        assert found > 0.91


def test_a_ratio_of_seconds_is_covered() -> None:
    """One method takes twice as long, by some chance; what an example takes varies much more."""
    drawn = draw(20, num_resamples=1000)

    def sample(generator: np.random.Generator) -> Values:
        below = generator.gamma(4, size=20)
        return np.stack([below, below * generator.lognormal(math.log(2) - 0.02, 0.2, size=20)])

    def interval(values: Values) -> Estimate | None:
        return ratio(values[1], values[0], drawn)

    assert coverage(sample, 2.0, interval, trials=600) > 0.91


@pytest.mark.parametrize("count", [1, 2, 7, MIN_EXAMPLES - 1])
def test_fewer_than_ten_have_no_interval(count: int) -> None:
    drawn = draw(count, num_resamples=FEW)
    for estimate in (
        mean(np.arange(count, dtype=np.float64) - 4.0, drawn),
        ratio(np.ones(count), np.ones(count), drawn),
    ):
        assert estimate is not None and estimate.interval is None and estimate.num_examples == count
        assert estimate.negative().interval is None


@given(st.floats(-1e9, 1e9), st.integers(MIN_EXAMPLES, 20))
def test_equal_nats_have_an_interval_of_no_width(value: float, count: int) -> None:
    estimate = mean(np.full(count, value), draw(count, num_resamples=FEW))
    assert estimate == Estimate(value, value, value, count)


@given(st.lists(st.floats(-1e3, 1e3), min_size=MIN_EXAMPLES, max_size=30), st.integers(0, 5))
def test_a_bootstrap_interval_holds_the_mean_and_stays_within_the_values(
    values: list[float], seed: int
) -> None:
    estimate = mean(np.array(values), draw(len(values), num_resamples=FEW, seed=seed))
    low, high = ends(estimate)
    assert estimate is not None
    assert estimate.mean == pytest.approx(math.fsum(values) / len(values), abs=1e-9)
    slack = 1e-9 * max(1.0, *map(abs, values))
    assert min(values) - slack <= low <= high <= max(values) + slack


def test_one_example_that_outweighs_all_others_has_an_interval() -> None:
    values = np.array([1e6] + [0.0] * 999)
    low, high = ends(mean(values, draw(1000)))
    assert 0 <= low < 1000 < high < 20_000


def test_the_interval_follows_the_formula_of_efron() -> None:
    """Written anew from Efron 1987 with one resample after another; the reach is that of Student's t."""
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
    found = ends(mean(values, draw(40, num_resamples=20_000)))
    assert found == pytest.approx(expected, abs=0.01)


# resamples


def test_one_example_in_four_is_in_a_resample_with_the_odds_of_drawing_it() -> None:
    """How often the last of four was drawn: binomial(4, 1/4)."""
    drawn = draw(4, num_resamples=4000)
    shares = np.bincount(drawn.counts[:, 3], minlength=5) / 4000
    assert shares == pytest.approx([math.comb(4, i) * 3 ** (4 - i) / 256 for i in range(5)], abs=0.03)


def test_resamples_repeat_with_the_seed() -> None:
    drawn = draw(50, num_resamples=FEW)
    assert np.array_equal(drawn.counts, draw(50, num_resamples=FEW).counts)
    assert not np.array_equal(drawn.counts, draw(50, num_resamples=FEW, seed=1).counts)


def test_resamples_beyond_one_block_are_counted_alike() -> None:
    values = np.random.default_rng(1).normal(size=(7, 3))
    drawn = draw(7, num_resamples=700)
    assert drawn.totals(values) == pytest.approx(drawn.counts.astype(float) @ values)
    assert set(drawn.counts.sum(axis=1)) == {7}


def test_a_ratio_is_that_of_the_sums() -> None:
    drawn = Resamples(np.ones((2, 2), dtype=np.uint16))
    found = ratio(np.array([6.0, 2.0]), np.array([1.0, 1.0]), drawn)
    assert found == Estimate(4, None, None, 2)
    assert ratio(np.zeros(2), np.zeros(2), drawn) is None
