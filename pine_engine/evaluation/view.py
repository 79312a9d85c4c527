"""One method by one kind of number, example by example."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean

import numpy as np

from pine_engine.evaluation import bootstrap, intervals
from pine_engine.evaluation.bootstrap import Resamples
from pine_engine.evaluation.grid import Column, Grid
from pine_engine.evaluation.intervals import Estimate, Floats
from pine_engine.evaluation.records import Record
from pine_engine.evaluation.verdicts import Kind, number
from pine_engine.tasks import Task


@dataclass(frozen=True)
class View:
    """The numbers of one kind that a method has in a grid. drawn: the resamples, the same for all views."""

    grid: Grid
    task: Task
    method: str
    kind: Kind
    drawn: Resamples

    @cached_property
    def values(self) -> Floats:
        """(examples, arrangements), NaN where nothing was measured."""
        return self.grid.values(self.method, lambda record: number(record, self.kind))

    @cached_property
    def over_orders(self) -> Floats:
        """(examples,): each one's mean over its arrangements, NaN for one without a number."""
        place = {name: index for index, name in enumerate(self.grid.arrangements)}
        kept = [[place[name] for name in names] for names in self.grid.averaged]
        rows = finite(row[places] for row, places in zip(self.values, kept, strict=True))
        return np.array([fmean(row) if row else np.nan for row in rows])

    @property
    def columns(self) -> tuple[Column, ...]:
        """The records of each example, by arrangement."""
        return self.grid.columns[self.method]

    def mean(self, values: Iterable[float | None], weights: Floats | None = None) -> Estimate | None:
        """Over the examples, a value each; one with None or NaN does not count. weights: (examples,)."""
        given = np.array(list(values), dtype=np.float64)
        if self.kind == "logprob":
            return bootstrap.mean(given, self.drawn, weights)
        return intervals.share(given, weights)

    def more_than(self, other: "View") -> Estimate | None:
        """How much higher its mean over orders is than the other's, over the examples that both have."""
        difference = self.over_orders - other.over_orders
        if self.kind == "logprob":
            return bootstrap.mean(difference, self.drawn)
        return intervals.share(difference, least=-1.0)

    def share(self, holds: Callable[[Record], bool], arrangement: str) -> Estimate | None:
        """The share of the examples for which it holds in that arrangement."""
        records = [column.get(arrangement) for column in self.columns]
        return self.mean(None if record is None else float(holds(record)) for record in records)


def finite(rows: Iterable[Floats]) -> list[list[float]]:
    """The numbers of each row without NaN."""
    return [[float(value) for value in row if np.isfinite(value)] for row in rows]


def sure(estimate: Estimate | None) -> Estimate:
    """An estimate over at least one number."""
    assert estimate is not None, "there are numbers, so they have a mean"
    return estimate
