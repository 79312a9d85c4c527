"""Methods by the names that stand in records, which may be of no row of the table of methods any more."""

from pine_engine.methods import METHODS


def method_label(name: str) -> str:
    """The method's label in the table of methods, or the name of one that is not there."""
    return METHODS[name].label if name in METHODS else name


def method_place(name: str) -> int:
    """Its place in the table, which is also its marker in all curves; those that are not there come last."""
    return list(METHODS).index(name) if name in METHODS else len(METHODS)


def promises_invariance(name: str) -> bool:
    """Whether no order of the documents changes what it says; False for one that is not in the table."""
    return name in METHODS and METHODS[name].promises_invariance
