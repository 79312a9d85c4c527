"""Tables, curves and parts of a report as plain data, and the text of an estimate in a cell."""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from pine_engine.lab.debias.measured import method_label
from pine_engine.lab.evaluation.grid import METRICS, Grid
from pine_engine.lab.evaluation.intervals import Estimate
from pine_engine.lab.evaluation.report.runs import NONE, MeasuredRun
from pine_engine.lab.evaluation.task_estimates import Row, method_rows
from pine_engine.prompts.tasks import TASKS

UNPARSED = "none parsed"  # cell of the score of answers of which none can be parsed
TOO_FEW = "too few"  # text in place of an interval of too few examples

METRIC_LABELS = {
    "generated": "generated answer, %",
    "chosen": "most likely choice, %",
    "logprob": "log-probability of the answer, nats",
}

SIGNED = ("minus", "first slot excess", "order gap")  # groups of differences

PLAIN = ("cramers v", "kappa", "kendall tau", "order tau", "rating")  # groups of numbers that are no shares

COST_UNITS = {"seconds": " s", "prefill_s": " s", "decode_s": " s", "prefill_ratio": "x", "ratio": "x"}


@dataclass(frozen=True)
class Table:
    """A table of texts. heads: number of columns that name their row. note: how to interpret the numbers."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    heads: int = 1
    note: str = ""


@dataclass(frozen=True)
class CurveLine:
    """Estimates of one method in percent or nats, one per place of a curve; None where there is none."""

    label: str
    mark: int  # number of the method's marker
    values: tuple[Estimate | None, ...]  # a single one is drawn across all places


@dataclass(frozen=True)
class Curve:
    """Lines over common places, or groups of bars."""

    name: str  # stem of an image file
    title: str
    x_title: str
    y_title: str
    places: tuple[str, ...]
    lines: tuple[CurveLine, ...]
    levels: tuple[CurveLine, ...] = ()  # of one estimate each
    areas: tuple[tuple[str, Sequence[float | None], Sequence[float | None]], ...] = ()  # label and both edges
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


Cell = Callable[[Row], str] | str | tuple[str, ...]
"""Cell of a row: a function, the group of an estimate, or its group and name."""

Columns = Mapping[str, Cell]  # cells by the title of their column

HEADS: Columns = {
    "run": lambda row: row.run,
    "by": lambda row: METRIC_LABELS[row.metric],
    "method": lambda row: method_label(row.method),
}


def pivot(name: str, rows: Sequence[Row], columns: Columns, *, heads: int = 3, **values: object) -> Table:
    """Return a table with a line per row, without the column of the run if all rows have one run.

    The columns of texts.toml follow those of the caller, without those that have no value.
    """
    runs = {row.run for row in rows}
    further = _texts()[name].get("columns", {})
    further = {title: cell for title, cell in further.items() if any(row.get(cell) for row in rows)}
    columns = {**columns, **{title.format(**values): cell for title, cell in further.items()}}
    if len(runs) == 1:
        del columns["run"]
        heads -= 1
    lines = [{title: _cell(row, cell) for title, cell in columns.items()} for row in rows]
    made = replace(table(name, lines, heads, **values), columns=tuple(columns))
    return replace(made, note=f"{runs.pop()}. {made.note}".strip()) if len(runs) == 1 else made


def _cell(row: Row, cell: Cell) -> str:
    return cell(row) if callable(cell) else estimated(row.get(*([cell] if isinstance(cell, str) else cell)))


def table(name: str, lines: Sequence[Mapping[str, str]], heads: int = 1, **values: object) -> Table:
    """Return a table of cells by column, with title and note from texts.toml."""
    columns = tuple(dict.fromkeys(title for line in lines for title in line))
    rows = tuple(tuple(line.get(title, NONE) for title in columns) for line in lines)
    texts = _texts()[name]
    title, note = (texts.get(key, "").strip().format(**values) for key in ("title", "note"))
    return Table(title, columns, rows, heads, note)


def text(name: str, **values: object) -> str:
    """Return a text of texts.toml with values in place of {names}."""
    return str(_texts()[name]).strip().format(**values)


@cache
def _texts() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("texts.toml").read_text(encoding="utf-8"))


def runs_of(task: str, runs: Sequence[MeasuredRun]) -> list[tuple[MeasuredRun, Grid]]:
    """Return the runs of a task with their estimates."""
    return [(run, found) for run in runs for found in run.tasks if found.task == task]


def metric_rows(task: str, runs: Sequence[MeasuredRun], metrics: Sequence[str] = METRICS) -> list[Row]:
    """Return the rows of a task: each run by metric, then by method."""
    return [
        replace(row, run=run.label)
        for run, found in runs_of(task, runs)
        for row in method_rows(found, metrics)
    ]


def task_label(name: str) -> str:
    """Return the label of a task."""
    return TASKS[name].label if name in TASKS else name


def in_percent(estimate: Estimate) -> Estimate:
    """Return a share in percent, and nats unchanged."""
    scale = 1.0 if estimate.metric == "logprob" else 100.0
    low, high = (None if end is None else scale * end for end in (estimate.low, estimate.high))
    return estimate._replace(mean=scale * estimate.mean, low=low, high=high)


def quantity(value: float | None, metric: str = "", *, is_signed: bool = False) -> str:
    """Return a share in percent with two digits, nats with two decimals, or a cost with three digits.

    "0" and "100" are exact: a share just below one is ">99". The sign is that of a difference.
    """
    if metric == "rating" and value is not None:
        return f"{value:+z.0f}"
    if value is None or metric in ("cost", *PLAIN):
        return NONE if value is None else f"{value:.3g}"
    value = round(value, 6)  # without rounding errors of its computation
    percent = 100 * value
    number = f"{percent:#.2g}" if 0 < abs(percent) < 9.95 else f"{percent:z.0f}"
    if metric == "logprob":
        number = f"{value:z.2f}"
    elif number == "100" and percent < 100 and not is_signed:
        number = ">99"
    return f"+{number}" if is_signed and value > 0 else number


def estimated(estimate: Estimate | None) -> str:
    """Return the mean with its interval: "62 (58 to 67)", "+2.0 (-1.1 to +5.0)", "1.5x (too few)"."""
    if estimate is None or not estimate.is_parsed:
        return UNPARSED if estimate else NONE
    values = (estimate.mean, *(estimate.interval or ()))
    metric = estimate.group if estimate.group in PLAIN else estimate.metric
    mean, *ends = (quantity(value, metric, is_signed=estimate.group in SIGNED) for value in values)
    unit = COST_UNITS.get(estimate.group, "") if estimate.metric == "cost" else ""
    return f"{mean}{unit} ({' to '.join(ends) or TOO_FEW})"
