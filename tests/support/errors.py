"""Conditions for the argument `check` of pytest.raises."""

from collections.abc import Callable


def has_field(field: str) -> Callable[[BaseException], bool]:
    """Return a condition that the error names this field."""
    return lambda error: getattr(error, "field", None) == field
