"""Conditions for the argument `check` of pytest.raises, and the mistakes of a file."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pine_engine.rows.parse_errors import ValidationErrors


def has_field(field: str) -> Callable[[BaseException], bool]:
    return lambda error: getattr(error, "field", None) == field


def problems_of(read: Callable[[], object], file: Path) -> list[tuple[int | None, str]]:
    """Return line and field of each mistake that reading a file reports."""
    with pytest.raises(ValidationErrors) as raised:
        read()
    assert raised.value.source == str(file) and str(raised.value).startswith(str(file))
    return [(problem.line, problem.field) for problem in raised.value.problems]
