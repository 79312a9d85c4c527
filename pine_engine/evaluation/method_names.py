"""Labels and ranks of the methods that records name, also of methods that are in no table."""

from pine_engine.debias.table import NUM_MEASURED, find_measured


def method_label(name: str) -> str:
    """Return the label of a method or of a wrapped method, or else its name."""
    found = find_measured(name)
    return found.label if found else name


def method_place(name: str) -> int:
    """Return the rank in tables: methods, then wrapped methods, then those that are in no table."""
    found = find_measured(name)
    return found.rank if found else NUM_MEASURED


def method_mark(name: str) -> int:
    """Return the number of the marker in all curves."""
    found = find_measured(name)
    return found.mark if found else NUM_MEASURED


def is_order_invariant(name: str) -> bool:
    """Return True if the answer does not depend on the order; False for a method that is in no table."""
    found = find_measured(name)
    return found is not None and found.is_order_invariant
