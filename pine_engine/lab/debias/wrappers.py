"""Wrappers that reduce a position bias of any base method.

A wrapper runs a method several times and combines the outputs (docs/specification.md, section 8). All
differences between two wrappers are columns of the table.
"""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pine_engine.errors import InputError
from pine_engine.input_validation import Registry
from pine_engine.lab.debias.estimators import ESTIMATORS, Estimator
from pine_engine.lab.debias.rank_aggregation import Aggregation
from pine_engine.methods.table import Method
from pine_engine.prompts.orders import OrderKind

if TYPE_CHECKING:  # imports torch
    from pine_engine.backend import Backend

Steps = Literal["first", "every"]  # generated tokens that are calibrated with the content-free prompts

Calibrated = Steps | Literal["nothing", "labels"]
"""Calibrated quantity: nothing, the labels, the first generated token, or every generated token."""

Invariance = Literal["always", "of base", "never"]
"""Order invariance of the result: always, if the base method is invariant, or never."""


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
    # Name of the estimator of a correction; all orders are run on a share of the samples only, to learn it.
    learns: str | None = None
    learned_share: float = 0.0
    num_labels: int | None = None  # None for any number
    max_documents: int | None = None  # None for any number
    aggregation: Aggregation | None = None  # of the rankings of all orders, None for mean probabilities
    calibrated: Calibrated = "nothing"
    subtracts_prior: bool = False  # True if the calibration of labels subtracts, False if it divides
    must_agree: bool = False  # True if the result is a tie unless all orders name the same document
    represents: bool = False  # True if the order nearest to the center of the largest cluster answers
    # Vanilla runs too; the base method's answer is taken if its confidence is larger by this number or more.
    margin: float | None = None

    @property
    def estimator(self) -> Estimator | None:
        """Estimator of the correction that is learned, None if none is."""
        return ESTIMATORS[self.learns] if self.learns else None

    @property
    def needs_labels(self) -> bool:
        """True if each request needs labels."""
        return (self.orders is not None and not self.represents) or self.calibrated == "labels"

    @property
    def votes(self) -> bool:
        """True if the answers generated in several orders vote."""
        return self.orders is not None and not self.learns and not self.represents

    @property
    def needs_only_labels(self) -> bool:
        """True if it needs votes or probabilities of labels as the first token, which a server may return."""
        return self.votes or self.calibrated == "labels"

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


def check_wrapper(backend: "Backend", wrapper: Wrapper) -> None:
    """Raise InputError if a wrapper needs log-probabilities that a backend does not return."""
    if backend.misfit("logprobs") and not wrapper.needs_only_labels:
        known = ", ".join(row.name for row in DEBIASERS.values() if row.needs_only_labels)
        needs = "the probability of every label or token in each run"
        needs = "the hidden state of the last prompt token" if wrapper.represents else needs
        reason = f"needs {needs}, which a server does not return"
        message = f"{wrapper.name} {reason}; use a loaded model, or choose from: {known}"
        raise InputError(message, field="wrapper")


def check_base(wrapper: Wrapper, base: Method) -> None:
    """Raise InputError if a wrapper of hidden states is around a method that merges several runs."""
    if wrapper.represents and base.merge:
        message = f"{wrapper.name} needs one hidden state per order, and {base.name} merges several runs"
        raise InputError(f"{message}; choose another base method", field="base")
