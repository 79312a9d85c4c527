"""Corrections learned from samples: PriDe by hand, CalibraEval against its loss and against released code."""

import math

import numpy as np
import pytest
from hypothesis import example, given, strategies as st

from pine_engine.lab.debias.estimators import CalibrationCurve, MeanPrior, pride_prior

RECORDED_PAIRS = [
    (0.8368, 0.3344), (0.7397, 0.6442), (0.7083, 0.5037), (0.899, 0.6121), (0.8643, 0.7874), (0.892, 0.7108),
]  # fmt: skip
RECORDED_LOSS = 0.09270216962524654 - 0.05 * 0.1893491124260355
RECORDED_LEVELS = {
    0.3344: 0.07837741305040641, 0.5037: 0.1565655329764021, 0.6121: 0.23414049844146592,
    0.6442: 0.31174967752455324, 0.7083: 0.38919289608665886, 0.7108: 0.4654555341645779,
    0.7397: 0.5418403049079782, 0.7874: 0.6179214627447648, 0.8368: 0.6942150226164795,
    0.8643: 0.7701837175649099, 0.892: 0.846585874167059, 0.899: 0.9232492940164838,
}  # fmt: skip
"""Output of CSHaitao/CalibraEval ed43886 for the pairs, with prompt 2 equal to prompt 1: the loss before its
epoch ("iter@0"), and levels after."""

Pairs = list[tuple[float, float]]


def loss_of(samples: np.ndarray) -> float:
    """Loss of the released code for levels in both orders."""
    return math.fsum((p + q - 1) ** 2 - 0.05 * (p - q) ** 2 for p, q in samples) / len(samples)


def biased_pairs(preferences: list[float], bias: float) -> Pairs:
    """Probabilities of the first label in both orders: a preference, and a bias that adds to its logit."""
    return [(1 / (1 + math.exp(-one - bias)), 1 / (1 + math.exp(one - bias))) for one in preferences]


def test_pride_prior_by_hand() -> None:
    # The means of the logarithms are those of 0.4 and 0.2, and 0.5 / 0.8 : 0.5 / 0.2 is 1 : 4.
    assert pride_prior([(0.8, 0.2), (0.5, 0.5)]) == pytest.approx((2 / 3, 1 / 3), abs=1e-8)
    mean = MeanPrior.fit([(0.75, 0.25), (0.25, 0.75), (0.5, 0.5), (0.1, 0.9)])
    assert mean.prior == pytest.approx((0.4, 0.6))
    assert MeanPrior((0.8, 0.2)).correct((0.5, 0.5)) == pytest.approx((0.2, 0.8), abs=1e-8)


def test_curve_is_gradient_descent_on_the_loss() -> None:
    """Repeat the descent with derivatives from differences of the loss."""
    values = sorted({value for pair in RECORDED_PAIRS for value in pair})
    places = np.array([[values.index(value) for value in pair] for pair in RECORDED_PAIRS])

    def levels(weights: np.ndarray) -> np.ndarray:
        return np.cumsum(np.exp(weights) / np.exp(weights).sum())

    weights, step = np.zeros(len(values) + 1), 1e-5
    assert loss_of(levels(weights)[places]) == pytest.approx(RECORDED_LOSS)
    for _ in range(30):
        ends = [[loss_of(levels(weights + sign * move)[places]) for sign in (1, -1)]
                for move in step * np.eye(len(weights))]  # fmt: skip
        slopes = np.array([(above - below) / (2 * step) for above, below in ends])
        weights = weights - len(weights) / 4 * slopes
    curve = CalibrationCurve.fit(RECORDED_PAIRS)
    assert curve.levels[1:-1] == pytest.approx(levels(weights)[:-1], abs=1e-7)
    assert loss_of(levels(weights)[places]) < RECORDED_LOSS - 0.02


def test_curve_has_nearly_the_neutral_point_of_the_released_code() -> None:
    """The released code takes one step for six samples, and its direction is not the gradient."""
    curve = CalibrationCurve.fit(RECORDED_PAIRS)
    assert curve.probabilities[1:-1] == tuple(RECORDED_LEVELS)
    neutral = np.interp(0.5, list(RECORDED_LEVELS.values()), list(RECORDED_LEVELS))
    assert curve.prior[0] == pytest.approx(neutral, abs=0.005)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=30))
@example([(0.0, 5e-324)])
def test_curve_increases_from_zero_to_one(samples: Pairs) -> None:
    curve = CalibrationCurve.fit(samples)
    assert (curve.levels[0], curve.levels[-1]) == (0, 1) and (np.diff(curve.levels) > 0).all()
    assert curve.correct(curve.prior) == pytest.approx((0.5, 0.5))
    for first, _ in samples:
        assert math.fsum(curve.correct((first, 1 - first))) == pytest.approx(1)


@given(st.lists(st.integers(-20, 20).filter(bool), min_size=1, max_size=30), st.floats(-2, 2))
def test_bias_added_to_each_sample_is_removed(preferences: list[int], bias: float) -> None:
    logits = [number / 10 for number in preferences]
    pairs = biased_pairs(logits, bias)
    curve = CalibrationCurve.fit(pairs)
    for logit, (first, second) in zip(logits, pairs, strict=True):
        here, there = curve.correct((first, 1 - first)), curve.correct((second, 1 - second))
        assert here[0] + there[0] == pytest.approx(1)
        assert (here[0] > 0.5) == (logit > 0)
