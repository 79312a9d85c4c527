"""How sure a number over examples is: 95 % intervals that are honest at 0 and 1 and for few examples.

The rule, by what the numbers are:

- Shares, such as accuracies and how often an answer changes, and differences of them: a score interval. For
  0 and 1 per example it is Wilson's. Means over orders, verdicts that count half, and sections with weights
  vary less or more than 0 and 1 would, so that they are worth more or fewer examples (Kish's effective
  number); how many is told from the data, with as much doubt as z² examples of the most variance add.
- Numbers without bounds, log-probabilities and seconds, and ratios: the bootstrap of bootstrap.py, and for
  fewer than FEWEST examples none.

Methods and orders stay paired: a difference is taken example by example, and then has an interval. In
both the subsets of a section count as drawn with their examples: a little wider than their fixed numbers
would be.

Sources: Wilson 1927; Brown, Cai and DasGupta 2001, "Interval estimation for a binomial proportion"; Kish
1965, "Survey sampling", for the effective number.
"""

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

LEVEL = 0.95
"""How often an interval contains what it is of, about."""

Z = NormalDist().inv_cdf((1 + LEVEL) / 2)

FEWEST = 10
"""Examples below which resampling them says nothing."""

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


class Estimate(BaseModel):
    """A number over n examples, and the ends of its interval; None for both where there are too few.

    is_read: False where it is the score of answers of which none can be read.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    mean: float
    low: float | None
    high: float | None
    n: int
    is_read: bool = True

    @property
    def interval(self) -> tuple[float, float] | None:
        """Both ends."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    def negative(self) -> "Estimate":
        """Of the negative: the difference the other way round."""
        low, high = (None, None) if self.interval is None else (-self.interval[1], -self.interval[0])
        return Estimate(mean=-self.mean, low=low, high=high, n=self.n)


def share(
    values: Floats, weights: Floats | None = None, *, least: float = 0.0, most: float = 1.0
) -> Estimate | None:
    """The mean of values that lie between `least` and `most`, with its score interval; None for no value.

    values: (n,), NaN where an example has none. weights: (n,), how much each counts; alike if not given.
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
    doubt = (Z * (most - least) / 2) ** 2
    spread = effective**2 * float(share_of**2 @ (found - mean) ** 2)
    largest = effective * (mean - least) * (most - mean)
    low, high = _wilson((mean - least) / (most - least), effective * (largest + doubt) / (spread + doubt))
    ends = least + (most - least) * low, least + (most - least) * high
    # Rounding may put an end past the mean, or past what is possible.
    return Estimate(
        mean=mean, low=max(least, min(ends[0], mean)), high=min(most, max(ends[1], mean)), n=len(found)
    )


def _wilson(proportion: float, examples: float) -> tuple[float, float]:
    """The ends of Wilson's score interval: all proportions that do not differ from this one by z errors."""
    doubt = Z**2 / examples
    middle = (proportion + doubt / 2) / (1 + doubt)
    reach = math.sqrt(doubt * (proportion * (1 - proportion) + doubt / 4)) / (1 + doubt)
    return middle - reach, middle + reach
