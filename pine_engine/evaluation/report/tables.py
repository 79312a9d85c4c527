"""Tables and curves as plain data, and how numbers are written in them."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from pine_engine.evaluation.summary.intervals import Estimate
from pine_engine.evaluation.summary.verdicts import Kind
from pine_engine.prompts.tasks import TASKS

NONE = "–"
"""Stands where nothing was measured."""

UNREAD = "none read"
"""Stands for the score of answers of which none can be read."""

TOO_FEW = "too few"
"""Stands in place of an interval for which there are too few examples."""

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
class CurveLine:
    """A method's values along a curve; None where there is none. mark: which marker it has everywhere.

    intervals: of each value, or none of any.
    """

    label: str
    mark: int
    values: tuple[float | None, ...]
    intervals: tuple[tuple[float, float] | None, ...]


@dataclass(frozen=True)
class Level:
    """One value that stands for all places of a curve. mark: the marker of its method."""

    label: str
    mark: int
    value: float
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class Between:
    """What lies between two lines, from start to end; None where there is none."""

    label: str
    start: tuple[float | None, ...]
    end: tuple[float | None, ...]


@dataclass(frozen=True)
class Curve:
    """Lines, levels and areas over the same places. name: a stem for its file. note: how to read it.

    has_bars: places are groups of bars, one for each line.
    """

    name: str
    title: str
    x_title: str
    y_title: str
    places: tuple[str, ...]
    lines: tuple[CurveLine, ...]
    levels: tuple[Level, ...] = ()
    areas: tuple[Between, ...] = ()
    has_bars: bool = False
    note: str = ""


@dataclass(frozen=True)
class Part:
    """A part of a report: some sentences, then tables, then curves. commands: to be run in a shell."""

    heading: str
    sentences: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    curves: tuple[Curve, ...] = ()
    commands: tuple[str, ...] = ()


def task_label(name: str) -> str:
    """The task's label in the table of tasks."""
    return TASKS[name].label if name in TASKS else name


def scale(kind: Kind) -> float:
    """What a value of that kind is drawn times: shares in percent, nats as they are."""
    return 1.0 if kind == "logprob" else 100.0


def scaled(interval: tuple[float, float], kind: Kind) -> tuple[float, float]:
    """An interval, drawn."""
    return scale(kind) * interval[0], scale(kind) * interval[1]


def quantity(value: float, kind: Kind) -> str:
    """A share in percent with one decimal, or nats with two."""
    return _rounded(scale(kind) * value, 2 if kind == "logprob" else 1)


def estimated(estimate: Estimate | None, kind: Kind = "generated") -> str:
    """The mean with the ends of its interval, if it has one: "62.5 (58.0 to 66.9)".

    A score of answers of which none can be read is none.
    """
    if estimate is not None and not estimate.is_read:
        return UNREAD
    return NONE if estimate is None else _with_ends(estimate, lambda value: quantity(value, kind))


def measured(estimate: Estimate | None, unit: str = "") -> str:
    """Times, ratios and counts: three digits, with their interval."""
    return NONE if estimate is None else _with_ends(estimate, lambda value: f"{value:.3g}", unit)


def signed(estimate: Estimate, kind: Kind) -> str:
    """A difference with its sign: "+2.0 (-1.1 to +5.0)"."""
    return _with_ends(estimate, lambda value: signed_quantity(value, kind))


def signed_quantity(value: float, kind: Kind) -> str:
    """A value with its sign: "+2.0"."""
    return ("+" if value > 0 else "") + quantity(value, kind)


def _with_ends(estimate: Estimate, write: Callable[[float], str], unit: str = "") -> str:
    said = write(estimate.mean) + unit
    if estimate.interval is None:
        return f"{said} ({TOO_FEW})"
    low, high = map(write, estimate.interval)
    return f"{said} ({low} to {high})"


def _rounded(value: float, decimals: int) -> str:
    """Rounded, without a sign before what is then zero."""
    text = f"{value:.{decimals}f}"
    return text if float(text) or not math.copysign(1, value) < 0 else text.removeprefix("-")
