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
    Row,
    Table,
    estimated,
    from_to,
    metric_rows,
    pivot,
    runs_of,
    slots_of,
    task_label,
)

BY_SLOT = "gold-at:"
"""Prefix of the orders that are in the table of slots."""


def main_results(task: str, runs: Sequence[MeasuredRun]) -> Table:
    """Return each method over all orders, its worst and best order, and how often its answer changes."""
    rows = metric_rows(task, runs)
    has_unparsed = any(one.mean for row in rows if (one := row.get("unparsed")))
    unparsed: list[Column] = [("cannot be read, %", ("unparsed",))] if has_unparsed else []
    columns: list[Column] = [
        *HEADS,
        NUM_EXAMPLES,
        *unparsed,
        ("mean over orders", ("mean",)),
        ("more than vanilla", _gain),
        ("worst order", partial(_extreme, index=0)),
        ("best order", partial(_extreme, index=1)),
        ("each example's worst order", ("worst case",)),
        ("answer changes, %", ("changed",)),
    ]
    return pivot("Main results", rows, columns, note=_about_mean(task, runs))


def _extreme(row: Row, *, index: int) -> str:
    """Return the mean of the worst (0) or best order (1), with its name if the orders differ."""
    order = row.task.extreme_orders(row.method, row.metric)[index]
    estimate = row.get("order", order)
    if estimate is None or not estimate.is_parsed:
        return estimated(estimate)
    means = {(one.mean, one.is_parsed) for name in row.task.averaged if (one := row.get("order", name))}
    return f"{'all alike' if len(means) == 1 else order}: {estimated(estimate)}"


def _gain(row: Row) -> str:
    """Return the paired difference to the baseline, none if the answers of either cannot be parsed."""
    both = row.get("mean"), replace(row, method=BASELINE).get("mean")
    if not all(mean is not None and mean.is_parsed for mean in both):
        return NONE
    return estimated(row.task.differences(row.method, row.metric).get(BASELINE))


def _about_mean(task: str, runs: Sequence[MeasuredRun]) -> str:
    """Name the orders that the means are over."""
    orders = {run.label: ", ".join(found.averaged) for run, found in runs_of(task, runs)}
    if len(set(orders.values())) == 1:
        which = f"Mean over: {next(iter(orders.values()))}."
    else:
        which = " ".join(f"Mean of {label} over: {names}." for label, names in orders.items())
    return (
        f"{which} Each order of the same documents counts once, and a shuffle only where there is nothing "
        "else. An answer changes if it is not the same in all orders; only answers that can "
        "be read are compared, and an example with fewer than two of them does not count there. In "
        "parentheses 95 % intervals, see “How to read it”."
    )


def order_results(task: str, runs: Sequence[MeasuredRun]) -> Table | None:
    """Return each method in each order, None if all orders are in the table of slots."""
    rows = metric_rows(task, runs)
    found = dict.fromkeys(name for row in rows for name in row.task.orders if row.get("order", name))
    names = [name for name in found if not name.startswith(BY_SLOT)]
    orders: list[Column] = [(name, ("order", name)) for name in names]
    columns = [*HEADS, NUM_EXAMPLES, ("mean over orders", ("mean",)), *orders]
    return pivot("In each order", rows, columns) if names else None


def slot_results(task: str, runs: Sequence[MeasuredRun]) -> Table | None:
    """Return each method with the gold document in each slot and shuffled, None for fewer than two slots."""
    rows = []
    for row in metric_rows(task, runs):
        found = row.task.names(row.method, row.metric, "slot")
        sizes = dict.fromkeys(size for size, _ in found)
        rows += [replace(row, part=size) for size in sizes if len(found) > 1]
    slots = sorted({slot for row in rows for slot in slots_of(row)})
    if not slots:
        return None
    of_slots: list[Column] = [(f"slot {slot + 1}", ("slot", str(slot))) for slot in slots]
    has_shuffles = any(row.task.names(row.method, row.metric, "shuffled") for row in rows)
    shuffled: list[Column] = [("shuffled", ("shuffled",))] if has_shuffles else []
    columns: list[Column] = [
        *HEADS,
        ("documents", lambda row: row.part),
        ("n", lambda row: from_to([one.num_examples for one in slots_of(row).values()])),
        *of_slots,
        *shuffled,
    ]
    note = (
        "The slot of the document that holds the answer, from 1, so that gold-at:0 is slot 1. The same "
        "examples in each slot of a size, with their other documents in the same order; shuffles stand "
        "apart, and count in no slot."
    )
    return pivot("With the answer in each slot", rows, columns, heads=4, note=note)


def cost_results(task: str, runs: Sequence[MeasuredRun]) -> Table:
    """Return seconds and tokens of each method, and the ratios to vanilla."""
    run, _, method = HEADS
    columns: list[Column] = [
        run,
        method,
        ("documents", lambda row: from_to(row.task.num_documents)),
        ("n", lambda row: str(row.task.num_examples)),
        ("computed", lambda row: f"{one.mean:.0f}" if (one := row.get("computed")) else NONE),
        ("seconds", ("seconds",)),
        ("prefill", ("prefill_s",)),
        ("decoding", ("decode_s",)),
        ("prompts", ("prompts",)),
        ("prompt tokens", ("prompt_tokens",)),
        ("answer tokens", ("answer_tokens",)),
        ("prefill, times vanilla", ("prefill_ratio",)),
        ("all, times vanilla", ("ratio",)),
    ]
    note = (
        "Per record that was computed: where the order cannot change a method's output, other orders are "
        "taken from the first and take no time. Seconds are what was spent: methods that run together "
        "share what they can. Prefill, decoding and times vanilla count as if nothing were shared. Times "
        "vanilla: in the orders where both were computed."
    )
    rows = [Row(run, found, name, "cost") for run, found in runs_of(task, runs) for name in found.methods]
    return pivot(task_label(task), rows, columns, heads=2, note=note)
