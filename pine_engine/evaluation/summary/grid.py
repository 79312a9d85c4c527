"""Records of one task as a grid of examples and order_names, the same examples for every method.

An example is used if it has every order_name under every method; what a killed run has not finished, and
what could not be measured, is left out for all methods alike.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean

import numpy as np

from pine_engine.evaluation.document_orders import is_drawn
from pine_engine.evaluation.records import Record
from pine_engine.evaluation.rewardbench import SUBSETS, find_subset
from pine_engine.evaluation.summary import bootstrap, intervals
from pine_engine.evaluation.summary.bootstrap import Resamples
from pine_engine.evaluation.summary.intervals import Estimate, Flags, Floats
from pine_engine.evaluation.summary.method_names import method_place
from pine_engine.evaluation.summary.verdicts import Kind, is_read, number

Column = dict[str, Record]
"""The records of one example under one method, by order_name."""

Weights = dict[tuple[str, str], float]
"""How much each subset of a judge's data weighs in its section, by the names of both."""


@dataclass(frozen=True)
class Grid:
    """The examples of one task that can be compared.

    methods: in the order of the method table, those that are not in it last. order_names: by name, in the
    order in which they were measured; an example may lack some that need more documents than it has.
    left_out: examples that are not complete. failed: records with an error. columns[method][i]: the records
    of examples[i].
    """

    task: str
    examples: tuple[str, ...]
    methods: tuple[str, ...]
    order_names: tuple[str, ...]
    left_out: int
    failed: int
    columns: dict[str, tuple[Column, ...]]

    def values(self, method: str, value: Callable[[Record], float | None]) -> Floats:
        """(n, a): a number from each record, NaN where there is no record or the number is None."""
        values = np.full((len(self.examples), len(self.order_names)), np.nan)
        for row, column in enumerate(self.columns[method]):
            for place, name in enumerate(self.order_names):
                found = value(column[name]) if name in column else None
                values[row, place] = np.nan if found is None else found
        return values

    @cached_property
    def distinct(self) -> tuple[list[str], ...]:
        """Names of each example's order_names, each order of the same texts once.

        One that a shuffle has drawn goes by its other name, if it has one.
        """
        return tuple(self._distinct(column) for column in self.columns[self.methods[0]])

    @cached_property
    def averaged(self) -> tuple[list[str], ...]:
        """Those of them over which an example is averaged: a single random order is no mean of orders."""
        return tuple([name for name in names if not is_drawn(name)] or names for names in self.distinct)

    def _distinct(self, column: Column) -> list[str]:
        first: dict[tuple[tuple[int, ...], tuple[int, ...]], str] = {}
        for name in sorted(filter(column.__contains__, self.order_names), key=is_drawn):
            first.setdefault((column[name].entered, column[name].order), name)
        return list(first.values())

    @cached_property
    def weights(self) -> Weights:
        """Of the subsets that the records name, in RewardBench's order, others last.

        One without a weight weighs as much as it has examples.
        """
        weights: Weights = {}
        for record in self.some_records():
            if record.section is not None:
                names = record.section, record.subset or ""
                weights[names] = weights.get(names, 0) + 1 if record.weight is None else record.weight
        rank = {(subset.section, subset.name): place for place, subset in enumerate(SUBSETS)}
        return {names: weights[names] for names in sorted(weights, key=lambda one: rank.get(one, len(rank)))}

    @cached_property
    def weights_v0_1_1(self) -> Weights:
        """The same with those that RewardBench 0.1.1 gave its subsets; empty if they are no others."""
        found = {names: find_subset(names[1]) for names in self.weights}
        old = {
            names: one.weight_v0_1_1 if (one := found[names]) and one.weight_v0_1_1 is not None else weight
            for names, weight in self.weights.items()
        }
        return {} if old == self.weights else old

    def some_records(self) -> list[Record]:
        """One record of each example, for what depends on neither method nor order_name."""
        return [next(iter(column.values())) for column in self.columns[self.methods[0]]]


@dataclass(frozen=True)
class Scores:
    """The numbers of one kind that a method has in a grid. drawn: the resamples, the same for all of them."""

    grid: Grid
    method: str
    kind: Kind
    drawn: Resamples

    @cached_property
    def values(self) -> Floats:
        """(examples, order_names), NaN where nothing was measured."""
        return self.grid.values(self.method, self.number)

    @cached_property
    def read(self) -> Flags:
        """(examples, order_names): whether there is a number, and it is of an answer that can be read."""
        return np.isfinite(self.grid.values(self.method, lambda record: self.reads(record) or None))

    @cached_property
    def averaged(self) -> Flags:
        """(examples, order_names): whether it is one of those that the example is averaged over."""
        return np.array([[name in names for name in self.grid.order_names] for names in self.grid.averaged])

    @cached_property
    def in_orders(self) -> list[list[float]]:
        """Of each example, the numbers in the order_names that it is averaged over."""
        return [
            [float(value) for value in row if np.isfinite(value)]
            for row in np.where(self.averaged, self.values, np.nan)
        ]

    @cached_property
    def over_orders(self) -> Floats:
        """(examples,): each one's mean over its order_names, NaN for one without a number."""
        return np.array([fmean(row) if row else np.nan for row in self.in_orders])

    @cached_property
    def read_in_orders(self) -> Flags:
        """(examples,): whether an answer can be read in any of the same order_names."""
        return np.asarray((self.read & self.averaged).any(axis=1))

    def number(self, record: Record) -> float | None:
        """What the record says, None if it was not measured."""
        return number(record, self.kind)

    def reads(self, record: Record) -> bool:
        """Whether there is such a number, and it is of an answer that can be read."""
        return self.number(record) is not None and is_read(record, self.kind)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The records of each example, by order_name."""
        return self.grid.columns[self.method]

    def mean(
        self, values: Iterable[float | None], weights: Floats | None = None, *, read: Flags | None = None
    ) -> Estimate | None:
        """Over the examples, a value each; one with None or NaN does not count. weights: (examples,).

        read: (examples,), whether what each value scores can be read; None for values that are no scores.
        """
        given = np.array(list(values), dtype=np.float64)
        if self.kind == "logprob":
            return bootstrap.mean(given, self.drawn, weights)
        estimate = intervals.share(given, weights)
        if estimate is None or read is None or (read & np.isfinite(given)).any():
            return estimate
        return estimate.model_copy(update={"is_read": False})

    def more_than(self, other: "Scores") -> Estimate | None:
        """How much higher its mean over orders is than the other's, over the examples that both have."""
        difference = self.over_orders - other.over_orders
        if self.kind == "logprob":
            return bootstrap.mean(difference, self.drawn)
        return intervals.share(difference, least=-1.0)

    def share(self, holds: Callable[[Record], bool], order_name: str) -> Estimate | None:
        """The share of the examples for which it holds in that order_name."""
        records = [column.get(order_name) for column in self.columns]
        return self.mean(None if record is None else float(holds(record)) for record in records)


def sure(estimate: Estimate | None) -> Estimate:
    """An estimate over at least one number."""
    assert estimate is not None, "there are numbers, so they have a mean"
    return estimate


def make_grid(records: Sequence[Record]) -> Grid:
    """The grid of records of one task. Of two records with one key the first counts."""
    (task,) = {record.task for record in records}
    methods = sorted({record.method for record in records}, key=lambda name: (method_place(name), name))
    order_names = tuple(dict.fromkeys(record.order_name for record in records))
    found: dict[str, dict[str, Column]] = {}
    expected: dict[tuple[int, bool], set[str]] = {}
    for record in records:
        if record.error is None:
            expected.setdefault(_size(record), set()).add(record.order_name)
            column = found.setdefault(record.example, {}).setdefault(record.method, {})
            column.setdefault(record.order_name, record)

    def is_complete(by_method: dict[str, Column]) -> bool:
        (size,) = {_size(record) for column in by_method.values() for record in column.values()}
        return all(by_method.get(method, {}).keys() >= expected[size] for method in methods)

    complete = [example for example, by_method in found.items() if is_complete(by_method)]
    return Grid(
        task=task,
        examples=tuple(complete),
        methods=tuple(methods),
        order_names=order_names,
        left_out=len({record.example for record in records}) - len(complete),
        failed=sum(record.error is not None for record in records),
        columns={method: tuple(found[example][method] for example in complete) for method in methods},
    )


def _size(record: Record) -> tuple[int, bool]:
    """What decides which order_names an example can have: its documents, and whether one is the gold one."""
    return record.num_documents, record.gold_slot is not None
