"""Records of one task as a grid of examples and arrangements, the same examples for every method.

An example is used if it has every arrangement under every method; what a killed run has not finished, and
what could not be measured, is left out for all methods alike.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pine_engine.evaluation.arrangements import is_drawn
from pine_engine.evaluation.records import Record
from pine_engine.evaluation.summary.intervals import Floats
from pine_engine.evaluation.summary.method_names import method_place

Column = dict[str, Record]
"""The records of one example under one method, by arrangement."""


@dataclass(frozen=True)
class Grid:
    """The examples of one task that can be compared.

    methods: in the order of the method table, those that are not in it last. arrangements: by name, in the
    order in which they were measured; an example may lack some that need more documents than it has.
    left_out: examples that are not complete. failed: records with an error. columns[method][i]: the records
    of examples[i].
    """

    task: str
    examples: tuple[str, ...]
    methods: tuple[str, ...]
    arrangements: tuple[str, ...]
    left_out: int
    failed: int
    columns: dict[str, tuple[Column, ...]]

    def values(self, method: str, value: Callable[[Record], float | None]) -> Floats:
        """(n, a): a number from each record, NaN where there is no record or the number is None."""
        values = np.full((len(self.examples), len(self.arrangements)), np.nan)
        for row, column in enumerate(self.columns[method]):
            for place, name in enumerate(self.arrangements):
                found = value(column[name]) if name in column else None
                values[row, place] = np.nan if found is None else found
        return values

    @cached_property
    def distinct(self) -> tuple[list[str], ...]:
        """Names of each example's arrangements, each order of the same texts once.

        One that a shuffle has drawn goes by its other name, if it has one.
        """
        return tuple(self._distinct(column) for column in self.columns[self.methods[0]])

    @cached_property
    def averaged(self) -> tuple[list[str], ...]:
        """Those of them over which an example is averaged: a single random order is no mean of orders."""
        return tuple([name for name in names if not is_drawn(name)] or names for names in self.distinct)

    def _distinct(self, column: Column) -> list[str]:
        first: dict[tuple[tuple[int, ...], tuple[int, ...]], str] = {}
        for name in sorted(filter(column.__contains__, self.arrangements), key=is_drawn):
            first.setdefault((column[name].entered, column[name].order), name)
        return list(first.values())

    def some_records(self) -> list[Record]:
        """One record of each example, for what depends on neither method nor arrangement."""
        return [next(iter(column.values())) for column in self.columns[self.methods[0]]]


def make_grid(records: Sequence[Record]) -> Grid:
    """The grid of records of one task. Of two records with one key the first counts."""
    (task,) = {record.task for record in records}
    methods = sorted({record.method for record in records}, key=lambda name: (method_place(name), name))
    arrangements = tuple(dict.fromkeys(record.arrangement for record in records))
    found: dict[str, dict[str, Column]] = {}
    expected: dict[tuple[int, bool], set[str]] = {}
    for record in records:
        if record.error is None:
            expected.setdefault(_size(record), set()).add(record.arrangement)
            column = found.setdefault(record.example, {}).setdefault(record.method, {})
            column.setdefault(record.arrangement, record)

    def is_complete(by_method: dict[str, Column]) -> bool:
        (size,) = {_size(record) for column in by_method.values() for record in column.values()}
        return all(by_method.get(method, {}).keys() >= expected[size] for method in methods)

    complete = [example for example, by_method in found.items() if is_complete(by_method)]
    return Grid(
        task=task,
        examples=tuple(complete),
        methods=tuple(methods),
        arrangements=arrangements,
        left_out=len({record.example for record in records}) - len(complete),
        failed=sum(record.error is not None for record in records),
        columns={method: tuple(found[example][method] for example in complete) for method in methods},
    )


def _size(record: Record) -> tuple[int, bool]:
    """What decides which arrangements an example can have: its documents, and whether one is the gold one."""
    return record.num_documents, record.gold_slot is not None
