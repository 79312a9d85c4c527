"""Records of one task as a grid of examples and arrangements, the same examples for every method.

An example is used if it has every arrangement under every method; what a killed run has not finished, and
what could not be measured, is left out for all methods alike.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pine_engine.evaluation.bootstrap import Floats
from pine_engine.evaluation.records import Record
from pine_engine.measured import find_measured

DRAWN = "shuffled"
"""How the names of arrangements begin that are drawn at random."""

Column = dict[str, Record]
"""The records of one example under one method, by arrangement."""


@dataclass(frozen=True)
class Grid:
    """The examples of one task that can be compared.

    methods: in the order of their tables. arrangements: by name, in the order in which they were
    measured; an example may lack some that need more documents than it has. left_out: examples that are
    not complete. failed: records with an error. columns[method][i]: the records of examples[i].
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
        """Names of each example's arrangements, each order of the same texts once."""
        return tuple(self._distinct(column) for column in self.columns[self.methods[0]])

    @cached_property
    def averaged(self) -> tuple[list[str], ...]:
        """Those of them over which an example is averaged: a single random order is no mean of orders."""
        return tuple(
            [name for name in names if not name.startswith(DRAWN)] or names for names in self.distinct
        )

    def _distinct(self, column: Column) -> list[str]:
        first: dict[tuple[tuple[int, ...], tuple[int, ...]], str] = {}
        for name in self.arrangements:
            if name in column:
                first.setdefault((column[name].entered, column[name].order), name)
        return list(first.values())

    def some_records(self) -> list[Record]:
        """One record of each example, for what depends on neither method nor arrangement."""
        return [next(iter(column.values())) for column in self.columns[self.methods[0]]]


def make_grid(records: Sequence[Record]) -> Grid:
    """The grid of records of one task. Of two records with one key the first counts."""
    (task,) = {record.task for record in records}
    methods = sorted(dict.fromkeys(record.method for record in records), key=_rank)
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


def _rank(method: str) -> float:
    """Its place in tables; what is in them no more comes last."""
    found = find_measured(method)
    return found.rank if found else math.inf


def _size(record: Record) -> tuple[int, bool]:
    """What decides which arrangements an example can have: its documents, and whether one is the gold one."""
    return record.num_documents, record.gold_slot is not None
