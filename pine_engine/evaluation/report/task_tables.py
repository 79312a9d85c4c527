"""A task's results over runs: over all orders, in each order, and what they cost."""

from collections.abc import Sequence

from pine_engine.evaluation.report.method_rows import (
    HEADS,
    MethodRow,
    from_to,
    method_rows,
    not_drawn,
    summaries,
)
from pine_engine.evaluation.report.runs import MeasuredRun
from pine_engine.evaluation.report.tables import (
    NONE,
    Curve,
    CurveLine,
    Table,
    estimated,
    measured,
    scaled,
    signed,
    task_label,
)
from pine_engine.evaluation.summary.method_names import method_label, method_mark, method_place
from pine_engine.evaluation.summary.summarize import BASELINE

BY_SLOT = "gold-at:"
"""How the names of order_names begin that the table of slots has."""


def main_results(task: str, runs: Sequence[MeasuredRun]) -> Table:
    """Every method over all orders, the worst and the best order, and how often the order decides."""
    found = list(method_rows(task, runs))
    has_unread = any(row.measure.unparsed is not None and row.measure.unparsed.mean for row in found)
    rows = [
        (
            *row.heads,
            str(row.measure.mean.n),
            *([estimated(row.measure.unparsed)] if has_unread else []),
            row.written(row.measure.mean),
            _gain(row),
            _at(row, row.measure.worst),
            _at(row, row.measure.best),
            row.written(row.measure.worst_case),
            estimated(row.measure.changed),
        )
        for row in found
    ]
    return Table(
        title="Main results",
        columns=(
            *HEADS,
            "n",
            *(["cannot be read, %"] if has_unread else []),
            "mean over orders",
            "more than vanilla",
            "worst order",
            "best order",
            "each example's worst order",
            "answer changes, %",
        ),
        rows=tuple(rows),
        heads=len(HEADS),
        note=_about_mean(task, runs),
    )


def order_results(task: str, runs: Sequence[MeasuredRun]) -> Table | None:
    """Every method in each order_name, beside the mean over orders; None if slots tell them apart."""
    found = list(method_rows(task, runs))
    names = list(dict.fromkeys(one.name for row in found for one in row.measure.order_names))
    names = [name for name in names if not name.startswith(BY_SLOT)]
    if not names:
        return None
    return Table(
        title="In each order",
        columns=(*HEADS, "n", "mean over orders", *names),
        rows=tuple(
            (
                *row.heads,
                str(row.measure.mean.n),
                row.written(row.measure.mean),
                *(row.written(row.order_name(name)) for name in names),
            )
            for row in found
        ),
        heads=len(HEADS),
    )


def cost_results(task: str, runs: Sequence[MeasuredRun]) -> Table:
    """Seconds and tokens of every method, and how many times vanilla's."""
    rows = []
    for run, summary in summaries(task, runs):
        for method in summary.methods:
            cost = method.cost
            rows.append(
                (
                    run.label,
                    method_label(method.method),
                    from_to(summary.num_documents),
                    str(summary.examples),
                    str(cost.computed),
                    measured(cost.seconds, " s"),
                    measured(cost.prefill_s, " s"),
                    measured(cost.decode_s, " s"),
                    measured(cost.prompts),
                    measured(cost.prompt_tokens),
                    measured(cost.answer_tokens),
                    measured(cost.prefill_ratio, "x"),
                    measured(cost.ratio, "x"),
                )
            )
    return Table(
        title=task_label(task),
        columns=(
            "run",
            "method",
            "documents",
            "n",
            "computed",
            "seconds",
            "prefill",
            "decoding",
            "prompts",
            "prompt tokens",
            "answer tokens",
            "prefill, times vanilla",
            "all, times vanilla",
        ),
        rows=tuple(rows),
        heads=2,
        note=(
            "Per record that was computed: where the order cannot change a method's output, other orders are "
            "taken from the first and take no time. Seconds are what was spent: methods that run together "
            "share what they can. Prefill, decoding and times vanilla count as if nothing were shared. Times "
            "vanilla: in the orders where both were computed."
        ),
    )


def accuracy_bars(task: str, runs: Sequence[MeasuredRun]) -> tuple[Curve, ...]:
    """A group of bars for each run, a bar for each method, where no slot tells documents apart.

    So for math, as the paper's Figure 5; answers of which none can be read have no bar, and a method that has
    none at all is named in the note alone.
    """
    found = [row for row in method_rows(task, runs) if row.measure.kind == "generated"]
    if not any(row.measure.is_read for row in found) or any(row.measure.slots for row in found):
        return ()
    groups = tuple(dict.fromkeys(row.run.label for row in found))
    lines = []
    for method in sorted({row.method.method for row in found}, key=method_place):
        own = {row.run.label: row.measure for row in found if row.method.method == method}
        means = [own[label].mean if label in own and own[label].is_read else None for label in groups]
        if not any(means):
            continue
        lines.append(
            CurveLine(
                label=method_label(method),
                mark=method_mark(method),
                values=tuple(None if mean is None else 100 * mean.mean for mean in means),
                intervals=tuple(
                    None if mean is None or mean.interval is None else scaled(mean.interval, "generated")
                    for mean in means
                ),
            )
        )
    curve = Curve(
        name=f"{task}-accuracy",
        title=f"{task_label(task)}: accuracy, mean over orders",
        x_title="model and data",
        y_title="accuracy, %",
        places=groups,
        lines=tuple(lines),
        has_bars=True,
        note=" ".join(not_drawn(found)),
    )
    return (curve,)


def _at(method_row: MethodRow, order_name: str) -> str:
    """The value in one order_name, with its name if there are others."""
    value = method_row.order_name(order_name)
    if value is None or not value.is_read:
        return method_row.written(value)
    compared = [
        found for name in method_row.task.averaged if (found := method_row.order_name(name)) is not None
    ]
    is_one = len({(one.mean, one.is_read) for one in compared}) == 1
    return f"{'all alike' if is_one else order_name}: {method_row.written(value)}"


def _gain(method_row: MethodRow) -> str:
    """On the baseline, with the interval of the paired difference; none where neither says anything."""
    names = {method_row.method.method, BASELINE}
    both = (one.measure(method_row.measure.kind) for one in method_row.task.methods if one.method in names)
    if not all(measure is not None and measure.is_read for measure in both):
        return NONE
    for one in method_row.task.differences:
        if one.kind == method_row.measure.kind and {one.method, one.than} == names:
            return signed(one.value if one.than == BASELINE else one.value.negative(), one.kind)
    return NONE


def _about_mean(task: str, runs: Sequence[MeasuredRun]) -> str:
    """Which orders the means are over."""
    said = {run.label: ", ".join(summary.averaged) for run, summary in summaries(task, runs)}
    if len(set(said.values())) == 1:
        which = f"Mean over: {next(iter(said.values()))}."
    else:
        which = " ".join(f"Mean of {label} over: {names}." for label, names in said.items())
    return (
        f"{which} Each order of the same documents counts once, and a shuffle only where there is nothing "
        "else. An answer changes if it is not the same in all orders; only answers that can "
        "be read are compared, and an example with fewer than two of them does not count there. In "
        "parentheses 95 % intervals, see “How to read it”."
    )
