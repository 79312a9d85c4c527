"""Estimates: means over examples with 95 % intervals that hold at 0 and 1 and for few examples.

Shares, such as accuracies, and differences of shares have a score interval: for 0 and 1 that of Wilson.
Means over orders, verdicts that count half, and sections with weights vary otherwise. They count as more or
fewer examples (Kish's effective number), estimated from the data with as much doubt as z² examples of maximal
variance add. Log-probabilities, seconds and ratios have the bootstrap of bootstrap.py. A difference is
computed per example. The subsets of a section count as drawn with their examples.

Sources: Wilson 1927; Brown, Cai and DasGupta 2001, "Interval estimation for a binomial proportion"; Kish
1965, "Survey sampling", for the effective number.
"""

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.95  # probability, about, that an interval contains the true value

NORMAL = NormalDist()

Z = NORMAL.inv_cdf((1 + LEVEL) / 2)

MIN_EXAMPLES = 10  # number of examples from which on resampled examples give an interval

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


class Estimate(NamedTuple):
    """A mean over examples with its 95 % interval, and labels of the quantity."""

    mean: float  # share from 0 to 1, nats for log-probabilities, or the unit of a cost; as low and high
    low: float | None
    high: float | None
    num_examples: int
    is_parsed: bool = True  # False if no answer behind the score can be parsed
    task: str = ""
    method: str = ""
    metric: str = ""  # "generated", "chosen", "logprob" (see grid.py) or "cost"
    group: str = ""  # quantity (see estimates.py)
    name: str = ""  # order, slot, section or other part

    @property
    def interval(self) -> tuple[float, float] | None:
        """Both ends of the interval."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def value(self) -> tuple[float, float | None, float | None, int, bool]:
        """The estimate without its labels."""
        return self.mean, self.low, self.high, self.num_examples, self.is_parsed

    def negative(self) -> "Estimate":
        """Return the estimate of the negative."""
        low, high = (None, None) if self.interval is None else (-self.interval[1], -self.interval[0])
        return self._replace(mean=-self.mean, low=low, high=high)


def share(
    values: Floats, weights: Floats | None = None, *, minimum: float = 0.0, maximum: float = 1.0
) -> Estimate | None:
    """Return the mean of values between `minimum` and `maximum` with its score interval, None for no value.

    values: (n,), NaN where an example has none. weights: (n,), equal if None.
    """
    known = np.isfinite(values)
    if not known.any():
        return None
    found = values[known]
    share_of = np.ones(len(found)) if weights is None else weights[known]
    share_of = share_of / share_of.sum()
    mean = min(max(float(share_of @ found), float(found.min())), float(found.max()))
    if found.min() == found.max():
        mean = float(found[0])
    effective = 1 / float(share_of @ share_of)
    # z² examples more, half at each end, would have this sum of squares around the middle.
    doubt = (Z * (maximum - minimum) / 2) ** 2
    spread = effective**2 * float(share_of**2 @ (found - mean) ** 2)
    largest = effective * (mean - minimum) * (maximum - mean)
    low, high = _wilson(
        (mean - minimum) / (maximum - minimum), effective * (largest + doubt) / (spread + doubt)
    )
    ends = minimum + (maximum - minimum) * low, minimum + (maximum - minimum) * high
    # Rounding may move an end past the mean or past the bounds.
    return Estimate(mean, max(minimum, min(ends[0], mean)), min(maximum, max(ends[1], mean)), len(found))


def _wilson(proportion: float, num_examples: float) -> tuple[float, float]:
    """Return the ends of Wilson's score interval: all proportions within z standard errors of this one."""
    doubt = Z**2 / num_examples
    middle = (proportion + doubt / 2) / (1 + doubt)
    reach = math.sqrt(doubt * (proportion * (1 - proportion) + doubt / 4)) / (1 + doubt)
    return middle - reach, middle + reach
