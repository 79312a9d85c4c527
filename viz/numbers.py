"""How measured numbers are written: three digits, and zero only where it is exactly zero."""

import math


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
