"""Tables of a judge's verdicts: accuracy by scenario, section and subset, and the effect of each swap."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from pine_engine.evaluation.intervals import Estimate
from pine_engine.evaluation.report.runs import MeasuredRun
from pine_engine.evaluation.report.tables import HEADS, Column, Table, estimated, metric_rows, note, pivot
from pine_engine.evaluation.slots import OVER_ORDERS, SCENARIOS
from pine_engine.evaluation.task_estimates import Row
from pine_engine.prompts.tasks import get_task

SCENARIO_HEADS: tuple[Column, ...] = (*HEADS, ("scenario", lambda row: row.part))


def scenario_rows(task: str, runs: Sequence[MeasuredRun]) -> list[Row]:
    """Return each method in each scenario, first over all orders unless one scenario has these orders."""
    rows = []
    for row in metric_rows(task, runs):
        scenarios = row.means("scenario", SCENARIOS)
        if row.mean.value not in [one.value for one in scenarios.values()]:
            rows.append(replace(row, part=OVER_ORDERS))
        rows += [replace(row, part=name) for name in scenarios]
    return rows


def old_weights(row: Row, group: str, *section: str) -> Estimate | None:
    """Return the estimate of a section or a total with the weights of v0.1.1."""
    return row.get(f"{group} v0.1.1", *section) or row.get(group, *section)


def scenario_results(task: str, runs: Sequence[MeasuredRun]) -> Table | None:
    """Return the scenarios by section, as the paper's Tables 1, 2, 4, 5 and 6; None without both.

    Data without sections have a column for all pairs.
    """
    rows = scenario_rows(task, runs)
    names = list(dict.fromkeys(name for row in rows for name in row.subsets()))
    has_scenarios = any(row.part != OVER_ORDERS for row in rows)
    if not names and not has_scenarios:
        return None
    columns: list[Column] = [*SCENARIO_HEADS]
    if not names:
        columns.append(("all pairs", lambda row: _counted(row.get("scenario") or row.mean)))
        return pivot("Scenarios", rows, columns, heads=4, note=note("scenarios"))
    columns += [(name, partial(_section, name=name)) for name in names]
    columns.append(("total", ("total",)))
    old = [name for name in names if any(_has_other_weights(row, name) for row in rows)]
    columns += [(f"{name}, weights of v0.1.1", partial(_section, name=name, is_v0_1_1=True)) for name in old]
    if old:
        columns.append(("total, weights of v0.1.1", lambda row: estimated(old_weights(row, "total"))))
    notes = ([note("scenarios")] if has_scenarios else []) + [note("sections")]
    return pivot("Scenarios by section", rows, columns, heads=4, note=" ".join(notes))


def _counted(estimate: Estimate | None) -> str:
    """Return the text of an estimate with its number of examples."""
    text = estimated(estimate)
    return text if estimate is None or not estimate.is_parsed else f"{text}, n = {estimate.num_examples}"


def _section(row: Row, name: str, *, is_v0_1_1: bool = False) -> str:
    return _counted(old_weights(row, "section", name) if is_v0_1_1 else row.get("section", name))


def _has_other_weights(row: Row, section: str) -> bool:
    new, old = row.get("section", section), old_weights(row, "section", section)
    return (new and new.value) != (old and old.value)


def subset_results(task: str, runs: Sequence[MeasuredRun]) -> list[Table]:
    """Return for each section the accuracy by subset and scenario, as the paper's Tables 7 to 15."""
    rows = [row for row in scenario_rows(task, runs) if row.metric != "logprob"]
    tables = []
    for section in dict.fromkeys(name for row in rows for name in row.subsets()):
        of_section = [row for row in rows if section in row.subsets()]
        weights = {name: weight for row in of_section for name, weight in row.subsets()[section].items()}
        subsets: list[Column] = [(name, partial(_subset, section=section, name=name)) for name in weights]
        text = f"Weights: {', '.join(f'{name} {weight:g}' for name, weight in weights.items())}."
        title = f"{section}: its subsets"
        tables.append(pivot(title, of_section, [*SCENARIO_HEADS, *subsets], heads=4, note=text))
    return tables


def _subset(row: Row, section: str, name: str) -> str:
    # A subset of weight 0 has an estimate, but is in no section.
    return _counted(row.get("subset", section, name) if name in row.subsets()[section] else None)


def position_bias(task: str, runs: Sequence[MeasuredRun]) -> Table | None:
    """Return the effect of each order on a judge's verdicts, None for a task without letters."""
    if not get_task(task).has_letters:
        return None
    rows = [
        replace(row, part=name)
        for row in metric_rows(task, runs, ["generated", "chosen"])
        for name in row.means("order", row.task.grid.orders)
    ]
    columns: list[Column] = [
        *HEADS,
        ("order", lambda row: row.part),
        ("n", lambda row: str(one.num_examples) if (one := row.get("order")) else ""),
        ("accuracy", ("order",)),
        ("other verdict than as stored, %", ("order changed",)),
        ("says A, %", ("says A",)),
        ("names the first, %", ("says first",)),
        ("no verdict, %", ("order unparsed",)),
    ]
    return pivot("Position bias", rows, columns, heads=4, note=note("position_bias"))
