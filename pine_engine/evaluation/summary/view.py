"""One method by one kind of number, example by example."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean

import numpy as np

from pine_engine.evaluation.records import Record
from pine_engine.evaluation.summary import bootstrap, intervals
from pine_engine.evaluation.summary.bootstrap import Resamples
from pine_engine.evaluation.summary.grid import Column, Grid
from pine_engine.evaluation.summary.intervals import Estimate, Flags, Floats
from pine_engine.evaluation.summary.verdicts import Kind, is_read, number
from pine_engine.prompts.tasks import Task


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
        return self.grid.values(self.method, self.number)

    @cached_property
    def read(self) -> Flags:
        """(examples, arrangements): whether there is a number, and it is of an answer that can be read."""
        return np.isfinite(self.grid.values(self.method, lambda record: self.reads(record) or None))

    @cached_property
    def averaged(self) -> Flags:
        """(examples, arrangements): whether it is one of those that the example is averaged over."""
        return np.array([[name in names for name in self.grid.arrangements] for names in self.grid.averaged])

    @cached_property
    def in_orders(self) -> list[list[float]]:
        """Of each example, the numbers in the arrangements that it is averaged over."""
        return [
            [float(value) for value in row if np.isfinite(value)]
            for row in np.where(self.averaged, self.values, np.nan)
        ]

    @cached_property
    def over_orders(self) -> Floats:
        """(examples,): each one's mean over its arrangements, NaN for one without a number."""
        return np.array([fmean(row) if row else np.nan for row in self.in_orders])

    @cached_property
    def read_in_orders(self) -> Flags:
        """(examples,): whether an answer can be read in any of the same arrangements."""
        return np.asarray((self.read & self.averaged).any(axis=1))

    def number(self, record: Record) -> float | None:
        """What the record says, None if it was not measured."""
        return number(record, self.kind)

    def reads(self, record: Record) -> bool:
        """Whether there is such a number, and it is of an answer that can be read."""
        return self.number(record) is not None and is_read(record, self.kind, self.task)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The records of each example, by arrangement."""
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


def sure(estimate: Estimate | None) -> Estimate:
    """An estimate over at least one number."""
    assert estimate is not None, "there are numbers, so they have a mean"
    return estimate
