"""Methods by the names that stand in records, which may be in no table any more."""

from pine_engine.debias.measured import NUM_MEASURED, find_measured


def method_label(name: str) -> str:
    """Its label, also with a wrapper around it, or the name of one that is in no table."""
    found = find_measured(name)
    return found.label if found else name


def method_place(name: str) -> int:
    """Its place in tables, methods before wrapped ones; those that are in no table come last."""
    found = find_measured(name)
    return found.rank if found else NUM_MEASURED


def method_mark(name: str) -> int:
    """Its marker in all curves."""
    found = find_measured(name)
    return found.mark if found else NUM_MEASURED


def is_order_invariant(name: str) -> bool:
    """Whether no order of the documents changes what it says; False for one that is in no table."""
    found = find_measured(name)
    return found is not None and found.is_order_invariant
