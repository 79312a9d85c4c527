"""Grid of the records of one task: examples x document orders, the same examples for each method.

An example is used if it has a record of each order under each method. What an interrupted run lacks, and what
could not be measured, is left out for all methods.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean

import numpy as np

from pine_engine.evaluation import bootstrap, intervals
from pine_engine.evaluation.answers import Metric, is_parsed, score_of
from pine_engine.evaluation.bootstrap import Resamples
from pine_engine.evaluation.document_orders import is_drawn
from pine_engine.evaluation.intervals import Estimate, Flags, Floats
from pine_engine.evaluation.method_names import method_place
from pine_engine.evaluation.records import Record
from pine_engine.evaluation.rewardbench import SUBSETS, find_subset

Column = dict[str, Record]
"""Records of one example under one method, by order."""

Weights = dict[tuple[str, str], float]
"""Weight of each subset of a judge's data in its section, by section and subset."""


@dataclass(frozen=True)
class Grid:
    """Examples of one task that can be compared.

    orders: names as they were measured; examples of few documents may lack some of them. left_out: number of
    incomplete examples. failed: number of records with an error. columns: by method, records of each example.
    """

    task: str
    examples: tuple[str, ...]
    methods: tuple[str, ...]
    orders: tuple[str, ...]
    left_out: int
    failed: int
    columns: dict[str, tuple[Column, ...]]

    def values(self, method: str, value: Callable[[Record], float | None]) -> Floats:
        """Return a number of each record, (examples, orders); NaN for no record or None."""
        values = np.full((len(self.examples), len(self.orders)), np.nan)
        for row, column in enumerate(self.columns[method]):
            for place, name in enumerate(self.orders):
                found = value(column[name]) if name in column else None
                values[row, place] = np.nan if found is None else found
        return values

    @cached_property
    def resamples(self) -> Resamples:
        """Resampled examples, the same for all estimates of the task."""
        return bootstrap.draw(len(self.examples))

    @cached_property
    def distinct(self) -> tuple[list[str], ...]:
        """Order names of each example, each order of the same texts once.

        A shuffle that equals a named order has the name of that order.
        """
        found = []
        for column in self.columns[self.methods[0]]:
            first: dict[tuple[tuple[int, ...], tuple[int, ...]], str] = {}
            for name in sorted(filter(column.__contains__, self.orders), key=is_drawn):
                first.setdefault((column[name].input_order, column[name].permutation), name)
            found.append(list(first.values()))
        return tuple(found)

    @cached_property
    def averaged(self) -> tuple[list[str], ...]:
        """Orders over which each example is averaged: shuffles only if there are no others."""
        return tuple([name for name in names if not is_drawn(name)] or names for names in self.distinct)

    @cached_property
    def weights(self) -> Weights:
        """Weights of the subsets that the records name, in the order of RewardBench, then of the records.

        The weight of a subset without one is its number of examples.
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
        """Weights of RewardBench 0.1.1, empty if they are equal to `weights`."""
        old = dict(self.weights)
        for names in old:
            subset = find_subset(names[1])
            if subset and subset.weight_v0_1_1 is not None:
                old[names] = subset.weight_v0_1_1
        return {} if old == self.weights else old

    @cached_property
    def averaged_orders(self) -> list[str]:
        """Names of the orders over which any example is averaged."""
        names = {name for of_example in self.averaged for name in of_example}
        return [name for name in self.orders if name in names]

    @cached_property
    def num_documents(self) -> list[int]:
        """Numbers of documents of the examples, ascending."""
        return sorted({record.num_documents for record in self.some_records()})

    def num_computed(self, method: str) -> int:
        """Return the number of records that were computed, not taken from another order."""
        return sum(record.was_computed for column in self.columns[method] for record in column.values())

    def some_records(self) -> list[Record]:
        """Return one record of each example, for values that depend on neither method nor order."""
        return [next(iter(column.values())) for column in self.columns[self.methods[0]]]


@dataclass(frozen=True)
class Scores:
    """Scores of one method by one metric in a grid."""

    grid: Grid
    method: str
    metric: Metric

    @cached_property
    def values(self) -> Floats:
        """Scores, (examples, orders), NaN where nothing was measured."""
        return self.grid.values(self.method, self.score)

    @cached_property
    def parsed(self) -> Flags:
        """True for scores of answers that can be parsed, (examples, orders)."""
        return np.isfinite(self.grid.values(self.method, lambda record: self.is_parsed(record) or None))

    @cached_property
    def averaged(self) -> Flags:
        """True for the orders over which an example is averaged, (examples, orders)."""
        return np.array([[name in names for name in self.grid.orders] for names in self.grid.averaged])

    @cached_property
    def in_orders(self) -> list[list[float]]:
        """Scores of each example in the orders over which it is averaged."""
        return [
            [float(value) for value in row if np.isfinite(value)]
            for row in np.where(self.averaged, self.values, np.nan)
        ]

    @cached_property
    def over_orders(self) -> Floats:
        """Mean of each example over its orders, (examples,); NaN for an example without a score."""
        return np.array([fmean(row) if row else np.nan for row in self.in_orders])

    @cached_property
    def parsed_in_orders(self) -> Flags:
        """True if an answer can be parsed in any of these orders, (examples,)."""
        return np.asarray((self.parsed & self.averaged).any(axis=1))

    def score(self, record: Record) -> float | None:
        """Return the score of a record, None if it was not measured."""
        return score_of(record, self.metric)

    def is_parsed(self, record: Record) -> bool:
        """Return True if there is a score, and it is of an answer that can be parsed."""
        return self.score(record) is not None and is_parsed(record, self.metric)

    @property
    def columns(self) -> tuple[Column, ...]:
        """Records of each example, by order."""
        return self.grid.columns[self.method]

    def mean(
        self, values: Iterable[float | None], weights: Floats | None = None, *, parsed: Flags | None = None
    ) -> Estimate | None:
        """Return the mean of one value per example, without None and NaN; None for no value.

        weights: (examples,). parsed: (examples,), True if the answer behind a score can be parsed; None for
        values that are no scores.
        """
        numbers = np.array(list(values), dtype=np.float64)
        if self.metric == "logprob":
            return bootstrap.mean(numbers, self.grid.resamples, weights)
        estimate = intervals.share(numbers, weights)
        if estimate is None or parsed is None or (parsed & np.isfinite(numbers)).any():
            return estimate
        return estimate._replace(is_parsed=False)

    def minus(self, other: "Scores") -> Estimate | None:
        """Return the difference of the means over orders, over the examples that both have."""
        difference = self.over_orders - other.over_orders
        if self.metric == "logprob":
            return bootstrap.mean(difference, self.grid.resamples)
        return intervals.share(difference, minimum=-1.0)

    def share(self, holds: Callable[[Record], bool], order: str) -> Estimate | None:
        """Return the share of the examples for which it holds in that order."""
        records = [column.get(order) for column in self.columns]
        return self.mean(None if record is None else float(holds(record)) for record in records)


def make_grid(records: Sequence[Record]) -> Grid:
    """Return the grid of the records of one task. Of two records with one key the first counts."""
    (task,) = {record.task for record in records}
    methods = sorted({record.method for record in records}, key=lambda name: (method_place(name), name))
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
        orders=tuple(dict.fromkeys(record.order_name for record in records)),
        left_out=len({record.example for record in records}) - len(complete),
        failed=sum(record.error is not None for record in records),
        columns={method: tuple(found[example][method] for example in complete) for method in methods},
    )


def _size(record: Record) -> tuple[int, bool]:
    """Return what decides the possible orders of an example: its size, and if it has a gold document."""
    return record.num_documents, record.gold_slot is not None
