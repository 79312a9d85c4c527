"""What can be measured: a method of the table alone, or a wrapper around one, named `wrapper:base`."""

from collections.abc import Sequence
from dataclasses import dataclass

from pine_engine.debias.table import DEBIASERS, Wrapper, get_wrapper
from pine_engine.errors import InputError
from pine_engine.methods.table import ALL, METHODS, Method, get_method, get_methods

AROUND = ":"
"""Stands between a wrapper and the method that it is around."""

USUAL_BASE = "vanilla"
"""What a wrapper is around where only its own name is given."""

_FIRST = next(iter(DEBIASERS))

NAMING = (
    f"In evaluate a wrapper goes around any method: {_FIRST}{AROUND}pine is {_FIRST} around PINE, and "
    f"{_FIRST} alone is {_FIRST}{AROUND}{USUAL_BASE}."
)
"""How wrapped methods are named, for readers of the tables."""

NUM_MEASURED = len(METHODS) * (1 + len(DEBIASERS))
"""How many there are: all methods alone, and every wrapper around each."""


@dataclass(frozen=True)
class MeasuredMethod:
    """A method, and the wrapper around it; None for the method alone."""

    base: Method
    wrapper: Wrapper | None = None

    @property
    def name(self) -> str:
        """As in records: "pine", "permutation_full:vanilla"."""
        return f"{self.wrapper.name}{AROUND}{self.base.name}" if self.wrapper else self.base.name

    @property
    def label(self) -> str:
        """As in tables: "PINE", "Permutation, full (Vanilla)"."""
        return f"{self.wrapper.label} ({self.base.label})" if self.wrapper else self.base.label

    @property
    def is_order_invariant(self) -> bool:
        """True if what it says must not depend on the order in which the documents are given."""
        if self.wrapper is None or self.wrapper.invariance_kind == "of base":
            return self.base.is_order_invariant
        return self.wrapper.invariance_kind == "always"

    @property
    def writes(self) -> bool:
        """True if an answer is written for it."""
        return self.wrapper is None or self.wrapper.votes or self.wrapper.steps is not None

    @property
    def weighs_answers(self) -> bool:
        """True if it says how likely a given answer is."""
        return self.wrapper is None or self.wrapper.votes

    @property
    def weighs_choices(self) -> bool:
        """True if it says how likely each of a task's choices is."""
        return self.wrapper is None or self.wrapper.orders is not None or self.wrapper.calibrated == "labels"

    @property
    def rank(self) -> int:
        """Its place in tables: methods as in their own, then wrappers as in theirs."""
        wrappers = [None, *DEBIASERS.values()]
        return wrappers.index(self.wrapper) * len(METHODS) + list(METHODS.values()).index(self.base)

    @property
    def mark(self) -> int:
        """Its marker in all curves: methods have the first ones, then come all wrappers around each.

        Where two in a figure look the same but for their colour, the later one is given another shape.
        """
        place = list(METHODS.values()).index(self.base)
        if self.wrapper is None:
            return place
        return len(METHODS) + place * len(DEBIASERS) + list(DEBIASERS.values()).index(self.wrapper)


def measured_method(name: str) -> MeasuredMethod:
    """The method or wrapped method of that name; a wrapper's name alone means around USUAL_BASE.

    Raises InputError for an unknown method or wrapper, and for a wrapper around a wrapper.
    """
    if name in METHODS:
        return MeasuredMethod(METHODS[name])
    wrapper, around, base = name.partition(AROUND)
    if not around and wrapper not in DEBIASERS:
        raise InputError(
            f"unknown method {name!r}; choose from: {', '.join(METHODS)}, or {ALL!r} alone, or put a wrapper "
            f"around one, as in {_FIRST}{AROUND}{USUAL_BASE}: {', '.join(DEBIASERS)}"
        )
    row = get_wrapper(wrapper)
    if base.partition(AROUND)[0] in DEBIASERS:
        raise InputError(
            f"{name} is a wrapper around a wrapper; put {wrapper} around a method: {', '.join(METHODS)}"
        )
    return MeasuredMethod(get_method(base if around else USUAL_BASE), row)


def measured_methods(names: Sequence[str] | None = None) -> tuple[MeasuredMethod, ...]:
    """Those named, in the order given; the default methods for None, every method alone for ["all"].

    Raises InputError as measured_method does, for none at all, and for a name given twice.
    """
    if not names or list(names) == [ALL]:
        return tuple(map(MeasuredMethod, get_methods(names)))
    chosen = tuple(map(measured_method, names))
    if len(set(chosen)) < len(chosen):
        raise InputError(f"a method was named twice in {', '.join(names)}; name each method once")
    return chosen


def find_measured(name: str) -> MeasuredMethod | None:
    """What a record names; None if it is in the tables no more."""
    try:
        return measured_method(name)
    except InputError:
        return None
