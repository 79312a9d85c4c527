"""Wrappers that reduce a position bias of any base method, and the names of wrapped methods: `wrapper:base`.

A wrapper runs a method several times and combines the outputs (docs/specification.md, section 8). All
differences between two wrappers are columns of the table.
"""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pine_engine.errors import InputError
from pine_engine.input_validation import Registry
from pine_engine.methods.table import ALL, METHODS, Method, get_method, get_methods
from pine_engine.prompts.orders import OrderKind

Steps = Literal["first", "every"]  # generated tokens that are calibrated with the content-free prompts

Calibrated = Steps | Literal["nothing", "labels"]
"""Calibrated quantity: nothing, the labels, the first generated token, or every generated token."""

Invariance = Literal["always", "of base", "never"]
"""Order invariance of the result: always, if the base method is invariant, or never."""

TIE = "tie"  # answer if several documents have the most votes

CONTENT_FREE = ("N/A", "", "[MASK]")
"""Texts that replace the content of each document in a content-free prompt."""


@dataclass(frozen=True)
class Wrapper:
    """One wrapper; the types above define its columns."""

    name: str
    label: str
    invariance_kind: Invariance
    description: str
    invariance: str  # in words
    cost: str  # number of runs of the base method, in words
    source: str
    orders: OrderKind | None = None  # None for the input order alone
    has_prior: bool = (
        False  # True if all orders are run on a few samples only, to learn a prior of the labels
    )
    calibrated: Calibrated = "nothing"
    # Vanilla runs too; the base method's answer is taken if its confidence is larger by this number or more.
    margin: float | None = None

    @property
    def votes(self) -> bool:
        """True if the answers generated in several orders vote."""
        return self.orders is not None and not self.has_prior

    @property
    def steps(self) -> Steps | None:
        """Generated tokens that are calibrated, None if none are."""
        return None if self.calibrated == "nothing" or self.calibrated == "labels" else self.calibrated


_ENTRIES = tomllib.loads(Path(__file__).with_name("wrappers.toml").read_text(encoding="utf-8"))["wrapper"]

DEBIASERS: dict[str, Wrapper] = Registry("wrapper", (Wrapper(**entry) for entry in _ENTRIES))
"""Wrappers by name, from wrappers.toml."""

SEPARATOR = ":"  # between the names of a wrapper and of its base method
DEFAULT_BASE = "vanilla"  # base method of a wrapper that is named alone

_FIRST = next(iter(DEBIASERS))

NAMING = (
    f"In evaluate a wrapper goes around any method: {_FIRST}{SEPARATOR}pine is {_FIRST} around PINE, and "
    f"{_FIRST} alone is {_FIRST}{SEPARATOR}{DEFAULT_BASE}."
)
"""Explanation of the names for readers of the tables."""

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
        return wrapper is None or wrapper.votes or wrapper.steps is not None or wrapper.margin is not None

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
