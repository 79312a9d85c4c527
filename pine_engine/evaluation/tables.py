"""Tables and curves as plain data, and how numbers are written in them."""

import math
from dataclasses import dataclass

from pine_engine.evaluation.bootstrap import Estimate
from pine_engine.evaluation.verdicts import Kind
from pine_engine.measured import NUM_MEASURED, find_measured
from pine_engine.tasks import TASKS

NONE = "–"
"""Stands where nothing was measured."""

KIND_LABELS: dict[Kind, str] = {
    "generated": "generated answer, %",
    "chosen": "most likely choice, %",
    "logprob": "log-probability of the answer, nats",
}


@dataclass(frozen=True)
class Table:
    """heads: how many columns on the left name their row. note: how to read it."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    heads: int = 1
    note: str = ""

    def __post_init__(self) -> None:
        assert all(len(row) == len(self.columns) for row in self.rows), self.title


def without_lone_run(table: Table) -> Table:
    """The table without a first column that names the same run in each row; its note names it."""
    runs = {row[0] for row in table.rows}
    if table.columns[0] != "run" or len(runs) != 1:
        return table
    return Table(
        title=table.title,
        columns=table.columns[1:],
        rows=tuple(row[1:] for row in table.rows),
        heads=table.heads - 1,
        note=f"{runs.pop()}. {table.note}".strip(),
    )


@dataclass(frozen=True)
class Line:
    """A method's values along a curve; None where there is none. mark: which marker it has everywhere."""

    label: str
    mark: int
    values: tuple[float | None, ...]
    intervals: tuple[tuple[float, float] | None, ...]


@dataclass(frozen=True)
class Curve:
    """Lines over the same places. name: a stem for its file."""

    name: str
    title: str
    x_title: str
    y_title: str
    places: tuple[str, ...]
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Part:
    """A part of a report: some sentences, then tables, then curves. commands: to be run in a shell."""

    heading: str
    sentences: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    curves: tuple[Curve, ...] = ()
    commands: tuple[str, ...] = ()


def method_label(name: str) -> str:
    """Its label, or the name of a method that is in the table no more."""
    found = find_measured(name)
    return found.label if found else name


def method_mark(name: str) -> int:
    """The marker that the method has in all curves."""
    found = find_measured(name)
    return found.mark if found else NUM_MEASURED


def task_label(name: str) -> str:
    """The task's label in the table of tasks."""
    return TASKS[name].label if name in TASKS else name


def quantity(value: float, kind: Kind) -> str:
    """A share in percent with one decimal, or nats with two."""
    return _rounded(value, 2) if kind == "logprob" else _rounded(100 * value, 1)


def estimated(estimate: Estimate | None, kind: Kind = "generated") -> str:
    """The mean with the ends of its interval: "62.5 (58.0 to 66.9)"."""
    if estimate is None:
        return NONE
    mean, low, high = (quantity(value, kind) for value in (estimate.mean, estimate.low, estimate.high))
    return f"{mean} ({low} to {high})"


def measured(estimate: Estimate | None, unit: str = "") -> str:
    """Times, ratios and counts: three digits, with their interval."""
    if estimate is None:
        return NONE
    mean, low, high = (f"{value:.3g}" for value in (estimate.mean, estimate.low, estimate.high))
    return f"{mean}{unit} ({low} to {high})"


def signed(estimate: Estimate, kind: Kind) -> str:
    """A difference with its sign: "+2.0 (-1.1 to +5.0)"."""
    mean, low, high = (
        ("+" if value > 0 else "") + quantity(value, kind)
        for value in (estimate.mean, estimate.low, estimate.high)
    )
    return f"{mean} ({low} to {high})"


def _rounded(value: float, decimals: int) -> str:
    """Rounded, without a sign before what is then zero."""
    text = f"{value:.{decimals}f}"
    return text if float(text) or not math.copysign(1, value) < 0 else text.removeprefix("-")
