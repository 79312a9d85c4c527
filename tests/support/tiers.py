"""Parameters of tests in two tiers."""

from collections.abc import Iterable
from typing import Any

import pytest


def first_daily(values: Iterable[Any], count: int = 1) -> list[Any]:
    """Return test parameters of which those after the first `count` are marked slow."""
    rows = [value if isinstance(value, tuple) else (value,) for value in values]
    return [pytest.param(*row, marks=() if n < count else pytest.mark.slow) for n, row in enumerate(rows)]
