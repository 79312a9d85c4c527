"""Wrappers that reduce a position bias of any base method, their names (`wrapper:base`), and their plans.

A wrapper runs a method several times and combines the outputs (docs/specification.md, section 8). All
differences between two wrappers are columns of the table. `run_debias` and the evaluation follow plans, which
are made and checked without a model: orders, content-free prompts, priors. In an order, order[p] is the
document at place p.
"""

import hashlib
import random
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pine_engine.errors import InputError
from pine_engine.input_validation import Registry
from pine_engine.lab.debias.estimators import ESTIMATORS, Estimator
from pine_engine.methods.table import ALL, METHODS, Method, get_method, get_methods
from pine_engine.prompts.orders import MAX_ORDERS, Order, OrderKind, document_orders
from pine_engine.prompts.prompt import Document, Prompt, Segment
from pine_engine.prompts.request import LabeledRequest, Request
from pine_engine.prompts.tasks import TASKS, document_letter

Steps = Literal["first", "every"]  # generated tokens that are calibrated with the content-free prompts

Calibrated = Steps | Literal["nothing", "labels"]
"""Calibrated quantity: nothing, the labels, the first generated token, or every generated token."""

Invariance = Literal["always", "of base", "never"]
"""Order invariance of the result: always, if the base method is invariant, or never."""

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
    # Name of the estimator of a correction; all orders are run on a share of the samples only, to learn it.
    learns: str | None = None
    learned_share: float = 0.0
    num_labels: int | None = None  # None for any number
    calibrated: Calibrated = "nothing"
    must_agree: bool = False  # True if the result is a tie unless all orders name the same document
    # Vanilla runs too; the base method's answer is taken if its confidence is larger by this number or more.
    margin: float | None = None

    @property
    def estimator(self) -> Estimator | None:
        """Estimator of the correction that is learned, None if none is."""
        return ESTIMATORS[self.learns] if self.learns else None

    @property
    def needs_labels(self) -> bool:
        """True if each request needs labels."""
        return self.orders is not None or self.calibrated == "labels"

    @property
    def votes(self) -> bool:
        """True if the answers generated in several orders vote."""
        return self.orders is not None and not self.learns

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


# Plans

SEED = 0  # seed of the hash that selects the examples of an evaluation from which a wrapper learns
_PLACEHOLDER = "\ue002"  # private-use character in place of a document's content while a prompt is built


def learned_samples(count: int, share: float, seed: int = 0) -> set[int]:
    """Return the indices of the requests from which a wrapper learns: a random share, at least one."""
    return set(random.Random(seed).sample(range(count), max(1, int(count * share))))


def is_learned_example(example: str, share: float) -> bool:
    """Check whether a wrapper learns from the example of an id, in every dataset and every part of one."""
    digest = hashlib.sha256(f"{SEED}:{example}".encode()).digest()
    return int.from_bytes(digest[:8]) < share * 2**64


def content_free_prompts(engine: Any, request: Request) -> list[Prompt]:
    """Return one prompt per content-free text, in place of the content, but not the title, of documents."""
    # An empty document is invalid, so the prompt is built with a placeholder.
    documents = [Document(text=_PLACEHOLDER, title=document.title) for document in request.documents]
    template = request.model_copy(update={"documents": documents}).prompt(engine)

    def fill(segment: Segment, content: str) -> Segment:
        return tuple(replace(piece, text=piece.text.replace(_PLACEHOLDER, content)) for piece in segment)

    return [
        replace(template, documents=tuple(fill(segment, content) for segment in template.documents))
        for content in CONTENT_FREE
    ]


@dataclass(frozen=True)
class DebiasPlan:
    """Requests under one wrapper."""

    wrapper: Wrapper
    base: str
    requests: tuple[LabeledRequest, ...]
    orders: tuple[tuple[Order, ...], ...]  # in which the base method is run, for each request
    majority: bool
    max_new_tokens: int  # limit of a generated answer, 0 if none is generated
    learned_samples: frozenset[int]  # indices of the requests from which a correction is learned

    @property
    def num_prompts(self) -> int:
        """Number of prefills."""
        others = 0 if self.wrapper.calibrated == "nothing" else len(CONTENT_FREE)
        if self.wrapper.margin is not None:
            others = len({DEFAULT_BASE, self.base}) - 1
        return sum(len(orders) + others for orders in self.orders)


def plan_debias(
    requests: Sequence[LabeledRequest],
    *,
    wrapper: str,
    base: str = "vanilla",
    majority: bool = False,
    max_new_tokens: int = 64,
    samples: int = 10,
    seed: int = 0,
    max_orders: int = MAX_ORDERS,
) -> DebiasPlan:
    """Plan the runs of a wrapper, and check that all requests fit it.

    Args:
        requests: Requests, with labels where the wrapper needs them. Default of judges: the letters of the
            answers.
        wrapper: Name in `DEBIASERS`.
        base: Method that is run several times.
        majority: True for a vote of generated answers; otherwise, probabilities of the labels are averaged.
        max_new_tokens: Limit of a generated answer.
        samples: Orders of `permutation_sampled`.
        seed: Seed of the sampled orders, and of the requests from which a wrapper learns.
        max_orders: Limit of `permutation_full`.

    Raises:
        InputError: For an unknown name, no request, labels that do not fit, or too many orders.
    """
    row = DEBIASERS[wrapper]
    base = get_method(base).name
    if not requests:
        raise InputError("no request to answer: expected at least one", field="requests")
    if majority and not row.votes:
        names = ", ".join(other.name for other in DEBIASERS.values() if other.votes)
        raise InputError(f"{wrapper} takes no majority of answers; choose from: {names}", field="majority")
    requests = [_with_labels(row, request) for request in requests]
    _check_labels(row, requests)
    learned = learned_samples(len(requests), row.learned_share, seed) if row.learns else set()
    is_text = row.margin is not None and not all(request.labels for request in requests)
    orders = []
    for index, request in enumerate(requests):
        kind = None if row.learns and index not in learned else row.orders
        options = {"samples": samples, "seed": seed, "max_orders": max_orders}
        orders.append(tuple(document_orders(len(request.documents), kind, **options)))
    return DebiasPlan(
        wrapper=row,
        base=base,
        requests=tuple(requests),
        orders=tuple(orders),
        majority=majority,
        max_new_tokens=max_new_tokens if majority or row.steps or is_text else 0,
        learned_samples=frozenset(learned),
    )


def _with_labels(wrapper: Wrapper, request: LabeledRequest) -> LabeledRequest:
    """Return a request with the letters of the documents as labels, if the wrapper needs labels."""
    if request.labels or not wrapper.needs_labels or not TASKS[request.task].has_letters:
        return request
    letters = map(document_letter, range(len(request.documents) + TASKS[request.task].has_tie))
    return request.model_copy(update={"labels": list(letters)})


def _check_labels(wrapper: Wrapper, requests: Sequence[LabeledRequest]) -> None:
    for request in requests:
        num_labels, has_tie = len(request.labels), TASKS[request.task].has_tie
        expected, message = len(request.documents) + has_tie, None
        if not num_labels and wrapper.needs_labels:
            message = f"{wrapper.name} needs labels: got none, expected some, such as A and B"
        elif wrapper.learns and has_tie:
            message = f"{wrapper.name} has no prior of a tie, which is no document; use the task judge"
        elif wrapper.orders and num_labels != expected:
            kinds = "one per document and one for a tie" if has_tie else "one per document"
            message = f"labels do not fit: got {num_labels}, expected {expected}, {kinds}"
        elif wrapper.num_labels not in (None, num_labels):
            message = f"{wrapper.name} needs {wrapper.num_labels} labels: got {num_labels}"
        elif wrapper.learns and request.labels != requests[0].labels:
            message = f"{wrapper.name} has requests with different labels; give the same labels throughout"
        if message:
            raise InputError(message, field="labels")
