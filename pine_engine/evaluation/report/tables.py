"""Tables, curves and parts of a report as plain data, and the text of an estimate in a cell."""

import math
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from pine_engine.debias.table import method_label
from pine_engine.evaluation.answers import METRICS
from pine_engine.evaluation.intervals import Estimate
from pine_engine.evaluation.report.runs import MeasuredRun
from pine_engine.evaluation.task_estimates import Row, TaskEstimates
from pine_engine.prompts.tasks import TASKS

NONE = "–"
"""Cell of a value that was not measured."""

UNPARSED = "none read"
"""Cell of the score of answers of which none can be parsed."""

TOO_FEW = "too few"
"""Text in place of an interval of too few examples."""

METRIC_LABELS: dict[str, str] = {
    "generated": "generated answer, %",
    "chosen": "most likely choice, %",
    "logprob": "log-probability of the answer, nats",
}


COST_UNITS = {"seconds": " s", "prefill_s": " s", "decode_s": " s", "prefill_ratio": "x", "ratio": "x"}


@dataclass(frozen=True)
class Table:
    """A table of texts. heads: number of columns that name their row. note: how to interpret the numbers."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    heads: int = 1
    note: str = ""

    def __post_init__(self) -> None:
        assert all(len(row) == len(self.columns) for row in self.rows), self.title


@dataclass(frozen=True)
class CurveLine:
    """Estimates of one method in percent or nats, one per place of a curve; None where there is none.

    mark: number of the method's marker. A line of one estimate is drawn across all places.
    """

    label: str
    mark: int
    values: tuple[Estimate | None, ...]


@dataclass(frozen=True)
class Curve:
    """Lines over common places, or groups of bars.

    levels: lines of one estimate. areas: label and both edges of each area. name: stem of an image file.
    """

    name: str
    title: str
    x_title: str
    y_title: str
    places: tuple[str, ...]
    lines: tuple[CurveLine, ...]
    levels: tuple[CurveLine, ...] = ()
    areas: tuple[tuple[str, Sequence[float | None], Sequence[float | None]], ...] = ()
    has_bars: bool = False
    note: str = ""


@dataclass(frozen=True)
class Part:
    """A part of a report: sentences, tables, curves, and commands for a shell."""

    heading: str
    sentences: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    curves: tuple[Curve, ...] = ()
    commands: tuple[str, ...] = ()


Column = tuple[str, Callable[[Row], str] | tuple[str, ...]]
"""Title of a column, and the cell of a row: a function, or group and name of an estimate."""

HEADS: tuple[Column, ...] = (
    ("run", lambda row: row.run),
    ("by", lambda row: METRIC_LABELS[row.metric]),
    ("method", lambda row: method_label(row.method)),
)

NUM_EXAMPLES: Column = ("n", lambda row: str(row.mean.num_examples))


def metric_rows(task: str, runs: Sequence[MeasuredRun], metrics: Sequence[str] = METRICS) -> list[Row]:
    """Return the rows of a task: each run by metric, then by method."""
    return [replace(row, run=run.label) for run, found in runs_of(task, runs) for row in found.rows(metrics)]


def runs_of(task: str, runs: Sequence[MeasuredRun]) -> list[tuple[MeasuredRun, TaskEstimates]]:
    """Return the runs of a task with their estimates."""
    return [(run, found) for run in runs for found in run.tasks if found.grid.task == task]


def pivot(
    title: str, rows: Sequence[Row], columns: Sequence[Column], *, heads: int = 3, note: str = ""
) -> Table:
    """Return a table with one cell for each row and column."""
    cells = [
        tuple(estimated(row.get(*cell)) if isinstance(cell, tuple) else cell(row) for _, cell in columns)
        for row in rows
    ]
    return Table(title, tuple(name for name, _ in columns), tuple(cells), heads, note)


def note(name: str, **values: object) -> str:
    """Return a text of texts.toml with values in place of {names}."""
    text: str = _texts()[name]
    return text.strip().format(**values)


@cache
def _texts() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("texts.toml").read_text(encoding="utf-8"))


def without_lone_run(table: Table) -> Table:
    """Return the table without the column of the run if all rows have one run. The note names it."""
    runs = {row[0] for row in table.rows}
    if table.columns[0] != "run" or len(runs) != 1:
        return table
    rows = tuple(row[1:] for row in table.rows)
    text = f"{runs.pop()}. {table.note}".strip()
    return Table(table.title, table.columns[1:], rows, table.heads - 1, text)


def from_to(numbers: Sequence[int]) -> str:
    """Return the range of numbers: "2", "10 to 20"."""
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"


def task_label(name: str) -> str:
    """Return the label of a task."""
    return TASKS[name].label if name in TASKS else name


def drawn(estimate: Estimate) -> Estimate:
    """Return a share in percent, and nats unchanged."""
    scale = 1.0 if estimate.metric == "logprob" else 100.0
    low, high = (None if end is None else scale * end for end in (estimate.low, estimate.high))
    return estimate._replace(mean=scale * estimate.mean, low=low, high=high)


def quantity(value: float, metric: str = "", *, is_signed: bool = False) -> str:
    """Return a share in percent with one decimal, or nats with two."""
    text = f"{value:.2f}" if metric == "logprob" else f"{100 * value:.1f}"
    if not float(text) and math.copysign(1, value) < 0:
        text = text.removeprefix("-")
    return f"+{text}" if is_signed and value > 0 else text


def estimated(estimate: Estimate | None) -> str:
    """Return the mean with its interval: "62.5 (58.0 to 66.9)", "+2.0 (-1.1 to +5.0)", "1.5x (too few)".

    Shares are in percent, differences have a sign, costs have three digits.
    """
    if estimate is None:
        return NONE
    if not estimate.is_parsed:
        return UNPARSED
    is_cost = estimate.metric == "cost"

    def text(value: float) -> str:
        if is_cost:
            return f"{value:.3g}"
        return quantity(value, estimate.metric, is_signed=estimate.group == "minus")

    mean = text(estimate.mean) + (COST_UNITS.get(estimate.group, "") if is_cost else "")
    if estimate.interval is None:
        return f"{mean} ({TOO_FEW})"
    low, high = map(text, estimate.interval)
    return f"{mean} ({low} to {high})"
