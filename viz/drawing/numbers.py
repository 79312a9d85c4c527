"""How measured numbers are written: three digits, and zero only where it is exactly zero."""

import math

import numpy as np
from numpy.typing import NDArray


def format_value(value: float) -> str:
    """Three significant digits; "0" only for exactly zero, small ones in scientific notation."""
    if value == 0:
        return "0"
    return f"{value:#.3g}".rstrip(".") if 1e-3 <= abs(value) < 1e3 else f"{value:.2e}"


def format_difference(value: float) -> str:
    """A logit difference as measured: "0.0" only for exactly zero, small ones in scientific notation."""
    if math.isnan(value):
        return "not a number"
    if value == 0:
        return "0.0"
    return f"{value:.1e}" if abs(value) < 1e-3 else f"{value:.3g}"


def plain_values(values: NDArray[np.float32]) -> tuple[float | None, ...]:
    """float32 values as Python writes them shortest, unrounded; None for NaN. values: (N,)."""
    return tuple(None if np.isnan(value) else float(str(value)) for value in values)


def format_percent(share: float) -> str:
    """A probability or share in percent, three digits; "100 %" only for all of it."""
    text = format_value(100 * share)
    return f"{'>99.9' if text == '100' and share < 1 else text} %"
