"""Methods with and without a wrapper around them, and their names (`wrapper:base`)."""

from collections.abc import Sequence
from dataclasses import dataclass

from pine_engine.errors import InputError
from pine_engine.lab.debias.wrappers import DEBIASERS, DEFAULT_BASE, SEPARATOR, Wrapper
from pine_engine.methods.table import ALL, METHODS, Method, get_method, get_methods

NUM_MEASURED = len(METHODS) * (1 + len(DEBIASERS))  # number of methods, alone and with each wrapper


@dataclass(frozen=True)
class MeasuredMethod:
    """A method, alone or with a wrapper around it."""

    base: Method
    wrapper: Wrapper | None = None

    @property
    def name(self) -> str:
        """Name in records: "pine", "permutation_full:vanilla"."""
        return f"{self.wrapper.name}{SEPARATOR}{self.base.name}" if self.wrapper else self.base.name

    @property
    def label(self) -> str:
        """Name in tables: "PINE", "Permutation, full (Vanilla)"."""
        return f"{self.wrapper.label} ({self.base.label})" if self.wrapper else self.base.label

    @property
    def is_order_invariant(self) -> bool:
        """True if the result is the same for all orders of the documents."""
        if self.wrapper is None or self.wrapper.invariance_kind == "of base":
            return self.base.is_order_invariant
        return self.wrapper.invariance_kind == "always"

    @property
    def generates(self) -> bool:
        """True if it generates an answer."""
        wrapper = self.wrapper
        if wrapper is None or wrapper.represents:
            return True
        return wrapper.votes or wrapper.steps is not None or wrapper.margin is not None

    @property
    def scores_answers(self) -> bool:
        """True if it has a log-probability of an accepted answer."""
        return self.wrapper is None or self.wrapper.votes

    @property
    def scores_choices(self) -> bool:
        """True if it has a log-probability of each choice of a task."""
        wrapper = self.wrapper
        is_scored = wrapper is None or wrapper.orders is not None or wrapper.margin is not None
        return is_scored or (wrapper is not None and wrapper.calibrated == "labels")


def measured_method(name: str) -> MeasuredMethod:
    """Return the method or wrapped method of a name. Raises InputError for an unknown or nested name."""
    if name.lower() in METHODS:
        return MeasuredMethod(METHODS[name])
    wrapper, separator, base = name.lower().partition(SEPARATOR)
    if not separator and wrapper not in DEBIASERS:
        known = ", ".join([*METHODS, ALL, *(f"{wrapper}{SEPARATOR}METHOD" for wrapper in DEBIASERS)])
        raise InputError(f"unknown method {name!r}; choose from: {known}", field="methods")
    row = DEBIASERS[wrapper]
    if base.partition(SEPARATOR)[0] in DEBIASERS:
        raise InputError(f"{name} is a wrapper around a wrapper; name a method", field="methods")
    return MeasuredMethod(get_method(base if separator else DEFAULT_BASE), row)


def measured_methods(names: Sequence[str] | None = None) -> tuple[MeasuredMethod, ...]:
    """Return methods by name, each once: the default methods for None, every method alone for ["all"]."""
    if not names or [name.lower() for name in names] == [ALL]:
        return tuple(map(MeasuredMethod, get_methods(names)))
    methods = tuple(map(measured_method, names))
    if len(set(methods)) < len(methods):
        raise InputError(f"a method is named twice in {', '.join(names)}", field="methods")
    return methods


def find_measured(name: str) -> MeasuredMethod | None:
    """Return the method that a record names, None if the tables no longer have it."""
    try:
        return measured_method(name)
    except InputError:
        return None


def method_label(name: str) -> str:
    """Return the label of the method that a record names, or else the name."""
    found = find_measured(name)
    return found.label if found else name


def method_rank(name: str) -> int:
    """Return the line in tables: methods alone, those of each wrapper, then those that are in no table."""
    if (found := find_measured(name)) is None:
        return NUM_MEASURED
    wrappers = [None, *DEBIASERS.values()]
    return wrappers.index(found.wrapper) * len(METHODS) + list(METHODS.values()).index(found.base)


def method_mark(name: str) -> int:
    """Return the number of the marker in all curves: methods alone, then all wrappers of each method.

    If two in a figure differ in color only, the later one gets another shape.
    """
    if (found := find_measured(name)) is None:
        return NUM_MEASURED
    place = list(METHODS.values()).index(found.base)
    if found.wrapper is None:
        return place
    return len(METHODS) + place * len(DEBIASERS) + list(DEBIASERS.values()).index(found.wrapper)


def is_order_invariant(name: str) -> bool:
    """Return True if the answer does not depend on the order; False for a method that is in no table."""
    found = find_measured(name)
    return found is not None and found.is_order_invariant
