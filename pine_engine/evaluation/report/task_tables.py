"""Tables of a task over runs: all orders, each order, each slot of the gold document, and costs."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from pine_engine.evaluation.estimates import BASELINE
from pine_engine.evaluation.report.runs import MeasuredRun
from pine_engine.evaluation.report.tables import (
    HEADS,
    NONE,
    NUM_EXAMPLES,
    Column,
    Table,
    estimated,
    from_to,
    metric_rows,
    note,
    pivot,
    runs_of,
    task_label,
)
from pine_engine.evaluation.task_estimates import Row

BY_SLOT = "gold-at:"
"""Prefix of the orders that are in the table of slots."""


def main_results(task: str, runs: Sequence[MeasuredRun]) -> Table:
    """Return each method over all orders, its worst and best order, and how often its answer changes."""
    rows = metric_rows(task, runs)
    columns: list[Column] = [*HEADS, NUM_EXAMPLES]
    if any(one.mean for row in rows if (one := row.get("unparsed"))):
        columns.append(("cannot be read, %", ("unparsed",)))
    columns += [
        ("mean over orders", ("mean",)),
        ("more than vanilla", _gain),
        ("worst order", partial(_extreme, index=0)),
        ("best order", partial(_extreme, index=1)),
        ("each example's worst order", ("worst case",)),
        ("answer changes, %", ("changed",)),
    ]
    orders = {run.label: ", ".join(found.grid.averaged_orders) for run, found in runs_of(task, runs)}
    if len(set(orders.values())) == 1:
        averaged = f"Mean over: {next(iter(orders.values()))}."
    else:
        averaged = " ".join(f"Mean of {label} over: {names}." for label, names in orders.items())
    return pivot("Main results", rows, columns, note=note("main_results", orders=averaged))


def _extreme(row: Row, *, index: int) -> str:
    """Return the mean of the worst (0) or best order (1), with its name if the orders differ."""
    orders = row.means("order", row.task.grid.averaged_orders)
    name = row.extreme_orders()[index]
    if not orders[name].is_parsed:
        return estimated(orders[name])
    is_one = len({(one.mean, one.is_parsed) for one in orders.values()}) == 1
    return f"{'all alike' if is_one else name}: {estimated(orders[name])}"


def _gain(row: Row) -> str:
    """Return the paired difference to the baseline, none if the answers of either cannot be parsed."""
    baseline = replace(row, method=BASELINE).get("mean")
    if not row.mean.is_parsed or baseline is None or not baseline.is_parsed:
        return NONE
    return estimated(row.differences().get(BASELINE))


def order_results(task: str, runs: Sequence[MeasuredRun]) -> Table | None:
    """Return each method in each order, None if all orders are in the table of slots."""
    rows = metric_rows(task, runs)
    found = dict.fromkeys(name for row in rows for name in row.means("order", row.task.grid.orders))
    orders: list[Column] = [(name, ("order", name)) for name in found if not name.startswith(BY_SLOT)]
    columns = [*HEADS, NUM_EXAMPLES, ("mean over orders", ("mean",)), *orders]
    return pivot("In each order", rows, columns) if orders else None


def slot_results(task: str, runs: Sequence[MeasuredRun]) -> Table | None:
    """Return each method with the gold document in each slot and shuffled, None for fewer than two slots."""
    rows = [
        replace(row, part=str(size))
        for row in metric_rows(task, runs)
        for size in dict.fromkeys(size for size, _ in row.slots())
        if len(row.slots()) > 1
    ]
    if not rows:
        return None
    columns: list[Column] = [*HEADS, ("documents", lambda row: row.part), ("n", _num_examples)]
    for slot in sorted({slot for row in rows for _, slot in row.slots()}):
        columns.append((f"slot {slot + 1}", ("slot", str(slot))))
    if any(row.get("shuffled") for row in rows):
        columns.append(("shuffled", ("shuffled",)))
    return pivot("With the answer in each slot", rows, columns, heads=4, note=note("slot_results"))


def _num_examples(row: Row) -> str:
    return from_to([one.num_examples for (size, _), one in row.slots().items() if str(size) == row.part])


def cost_results(task: str, runs: Sequence[MeasuredRun]) -> Table:
    """Return seconds and tokens of each method, and the ratios to vanilla."""
    run, _, method = HEADS
    columns: list[Column] = [
        run,
        method,
        ("documents", lambda row: from_to(row.task.grid.num_documents)),
        ("n", lambda row: str(len(row.task.grid.examples))),
        ("computed", lambda row: str(row.task.grid.num_computed(row.method))),
        ("seconds", ("seconds",)),
        ("prefill", ("prefill_s",)),
        ("decoding", ("decode_s",)),
        ("prompts", ("prompts",)),
        ("prompt tokens", ("prompt_tokens",)),
        ("answer tokens", ("answer_tokens",)),
        ("prefill, times vanilla", ("prefill_ratio",)),
        ("all, times vanilla", ("ratio",)),
    ]
    rows = metric_rows(task, runs, ["cost"])
    return pivot(task_label(task), rows, columns, heads=2, note=note("cost_results"))
