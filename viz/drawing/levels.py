"""Magnitudes as one of 33 colours, which figures.css names, so that thousands of cells stay small."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from viz.drawing.numbers import format_value

TOP_LEVEL = 32
"""Levels are 0 .. TOP_LEVEL, evenly spaced on cividis; the class of a cell is "l" and its level."""


@dataclass(frozen=True)
class Scale:
    """A colour scale: linear from zero to the largest value, or of log10 between the smallest and largest.

    smallest: of the values above zero. largest: 1 if there is none above zero.
    """

    smallest: float
    largest: float
    is_log: bool

    @classmethod
    def of(cls, values: NDArray[np.float32], *, is_log: bool = False) -> "Scale":
        """The scale on which these values are drawn; NaN and zero do not matter."""
        positive = values[values > 0].astype(np.float64)
        if not positive.size:
            return cls(1.0, 1.0, is_log)
        return cls(float(positive.min()), float(positive.max()), is_log)

    def levels(self, values: NDArray[np.float32]) -> NDArray[np.int64]:
        """Level of each value, 0 .. TOP_LEVEL; -1 for NaN. On a log scale zero is at level 0 too."""
        exact = values.astype(np.float64)
        if not self.is_log:
            places = exact / self.largest
        elif self.smallest == self.largest:
            places = (exact > 0).astype(np.float64)
        else:
            logs = np.log10(np.where(exact > 0, exact, self.smallest))
            places = (logs - np.log10(self.smallest)) / np.log10(self.largest / self.smallest)
        return np.where(np.isnan(exact), -1, np.rint(np.nan_to_num(places) * TOP_LEVEL)).astype(np.int64)

    @property
    def ends(self) -> tuple[str, str]:
        """What is written at the two ends of the scale."""
        return (format_value(self.smallest) if self.is_log else "0", format_value(self.largest))
