"""Conditions for the argument `check` of pytest.raises."""

from collections.abc import Callable


def has_field(field: str) -> Callable[[BaseException], bool]:
    return lambda error: getattr(error, "field", None) == field
