"""Tables of a judge's verdicts: accuracy by scenario, section and subset, and the effect of each swap."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from pine_engine.evaluation.intervals import Estimate
from pine_engine.evaluation.judge_scenarios import OVER_ORDERS, SCENARIOS
from pine_engine.evaluation.report.runs import MeasuredRun
from pine_engine.evaluation.report.tables import (
    HEADS,
    Column,
    Row,
    Table,
    estimated,
    metric_rows,
    pivot,
)
from pine_engine.prompts.tasks import get_task

SCENARIOS_NOTE = (
    "“Better answer is A”: it stands first and bears that letter. A verdict changes if it names the other "
    "answer once both are swapped, with their letters; that row has the share of such pairs, of those "
    "of which both verdicts can be read."
)

SECTIONS_NOTE = (
    "A section is the mean of its subsets by their weights, the total the plain mean of the sections. "
    "Weights are those of RewardBench after v0.1.1 if nothing else is said."
)

SCENARIO: Column = ("scenario", lambda row: row.part)


def scenario_rows(task: str, runs: Sequence[MeasuredRun]) -> list[Row]:
    """Return each method in each scenario, first over all orders unless one scenario has these orders."""
    rows = []
    for row in metric_rows(task, runs):
        mean = row.get("mean")
        scenarios = {name: one for name in SCENARIOS if (one := row.get("scenario", name))}
        if mean and mean.value not in [one.value for one in scenarios.values()]:
            rows.append(replace(row, part=OVER_ORDERS))
        rows += [replace(row, part=name) for name in scenarios]
    return rows


def subsets_of(row: Row) -> dict[str, dict[str, float]]:
    """Return the weights of the subsets in the scenario of a row, by section."""
    return row.task.subsets(row.method, row.metric, row.part)


def old_weights(row: Row, group: str, *section: str) -> Estimate | None:
    """Return the estimate of a section or a total with the weights of v0.1.1."""
    return row.get(f"{group} v0.1.1", *section) or row.get(group, *section)


def counted(row: Row, *labels: str) -> str:
    """Return the text of an estimate with its number of examples."""
    estimate = row.get(*labels) if labels else row.get("scenario") or replace(row, part="").get("mean")
    text = estimated(estimate)
    return text if estimate is None or not estimate.is_parsed else f"{text}, n = {estimate.num_examples}"


def scenario_results(task: str, runs: Sequence[MeasuredRun]) -> Table | None:
    """Return the scenarios by section, as the paper's Tables 1, 2, 4, 5 and 6; None without both.

    Data without sections have a column for all pairs.
    """
    rows = scenario_rows(task, runs)
    names = list(dict.fromkeys(name for row in rows for name in subsets_of(row)))
    has_scenarios = any(row.part != OVER_ORDERS for row in rows)
    if not names and not has_scenarios:
        return None
    columns: list[Column] = [*HEADS, SCENARIO]
    if names:
        columns += [(name, partial(_counted_section, name=name)) for name in names]
        columns.append(("total", ("total",)))
    else:
        columns.append(("all pairs", counted))
    old = [name for name in names if any(_has_other_weights(row, name) for row in rows)]
    for name in old:
        columns.append((f"{name}, weights of v0.1.1", partial(_counted_section, name=name, is_old=True)))
    if old:
        columns.append(("total, weights of v0.1.1", lambda row: estimated(old_weights(row, "total"))))
    notes = ([SCENARIOS_NOTE] if has_scenarios else []) + ([SECTIONS_NOTE] if names else [])
    title = "Scenarios by section" if names else "Scenarios"
    return pivot(title, rows, columns, heads=4, note=" ".join(notes))


def _counted_section(row: Row, *, name: str, is_old: bool = False) -> str:
    has_old = is_old and row.get("section v0.1.1", name) is not None
    return counted(row, "section v0.1.1" if has_old else "section", name)


def _has_other_weights(row: Row, section: str) -> bool:
    new, old = row.get("section", section), old_weights(row, "section", section)
    return (new and new.value) != (old and old.value)


def subset_results(task: str, runs: Sequence[MeasuredRun]) -> list[Table]:
    """Return for each section the accuracy by subset and scenario, as the paper's Tables 7 to 15."""
    rows = [row for row in scenario_rows(task, runs) if row.metric != "logprob"]
    tables = []
    for section in dict.fromkeys(name for row in rows for name in subsets_of(row)):
        of_section = [row for row in rows if section in subsets_of(row)]
        weights = {name: weight for row in of_section for name, weight in subsets_of(row)[section].items()}
        columns: list[Column] = [*HEADS, SCENARIO]
        columns += [(name, partial(_counted_subset, section=section, name=name)) for name in weights]
        note = f"Weights: {', '.join(f'{name} {weight:g}' for name, weight in weights.items())}."
        tables.append(pivot(f"{section}: its subsets", of_section, columns, heads=4, note=note))
    return tables


def _counted_subset(row: Row, *, section: str, name: str) -> str:
    # A subset of weight 0 has an estimate, but is in no section.
    is_in_section = name in subsets_of(row).get(section, {})
    return counted(row, "subset", section, name) if is_in_section else estimated(None)


def position_bias(task: str, runs: Sequence[MeasuredRun]) -> Table | None:
    """Return the effect of each order on a judge's verdicts, None for a task without letters."""
    if not get_task(task).has_letters:
        return None
    rows = [
        replace(row, part=name)
        for row in metric_rows(task, runs)
        for name in row.task.orders
        if row.metric != "logprob" and row.get("order", name)
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
    note = (
        "A verdict is the answer that it names, whatever letter that bears. It is compared where the "
        "answers stand otherwise than in the data, and both verdicts can be read. segments-swapped moves "
        "the answers and leaves them their letters, labels-swapped the other way round, swapped does "
        "both, as a user would. A method without position bias has 0.0 under segments-swapped; under the "
        "others its documents have another text. “Names the first”: the answer that stands first, "
        "whatever its letter."
    )
    return pivot("Position bias", rows, columns, heads=4, note=note)
