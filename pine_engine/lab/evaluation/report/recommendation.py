"""One recommended action for a run, in a sentence with the number that it rests on."""

from collections.abc import Iterator

from pine_engine.lab.debias.measured import is_order_invariant, method_label
from pine_engine.lab.evaluation.estimates import BASELINE
from pine_engine.lab.evaluation.grid import Grid
from pine_engine.lab.evaluation.intervals import MIN_EXAMPLES, Estimate
from pine_engine.lab.evaluation.report.limits import num_examples_to_decide
from pine_engine.lab.evaluation.report.runs import MeasuredRun
from pine_engine.lab.evaluation.report.tables import estimated
from pine_engine.lab.evaluation.task_estimates import Row, answer_estimate

MAX_CHANGED = 0.05
"""Share of changed answers up to which a method needs no replacement (definition of this project)."""

MAX_UNPARSED = 0.1
"""Share of answers that cannot be parsed, above which no other result is used."""


def recommendations(run: MeasuredRun) -> Iterator[str]:
    """Yield the recommended action for each task of a run."""
    for grid in run.tasks:
        subject = BASELINE if BASELINE in grid.methods else grid.methods[0]
        if action := _action(grid, subject):
            yield f"Recommended: {action}."


def _action(grid: Grid, subject: str) -> str:
    label = method_label(subject)
    unparsed, changed = (answer_estimate(grid, subject, group) for group in ("unparsed", "changed"))
    if unparsed and unparsed.low is not None and (unparsed.low > MAX_UNPARSED or unparsed.mean >= 0.5):
        share = f"{estimated(unparsed)} % of {label}’s answers cannot be parsed"
        return f"change the prompt and measure again, because {share}"
    if grid.num_documents == [1]:
        return "measure examples of two documents or more, because one document has no other order"
    if max(map(len, grid.distinct)) < 2:
        return "measure another order (--orders as-is,reversed), because only one order has answers"
    if changed is None or changed.low is None or changed.high is None:
        return ""
    share = f"the order changes {estimated(changed)} % of {label}’s answers, n = {changed.num_examples}"
    limit = f"{100 * MAX_CHANGED:.0f} %"
    if changed.high <= MAX_CHANGED:
        return f"keep {label}, because {share}, at most {limit} in the interval"
    if changed.low <= MAX_CHANGED:
        needed = num_examples_to_decide(changed.mean, MAX_CHANGED)
        number = f"about {needed:,} examples in all" if needed else "more examples"
        return f"measure {number}, because {share}: the interval contains {limit}, the limit of this advice"
    if changed.num_examples < MIN_EXAMPLES:
        return f"measure {MIN_EXAMPLES} examples or more, because fewer show no better method: {share}"
    return _replacement(grid, subject, changed, share)


def _replacement(grid: Grid, subject: str, changed: Estimate, share: str) -> str:
    """Return the action for a method whose answer changes too often: another method that was measured."""
    metric = changed.metric
    stable = [
        name
        for name in grid.methods
        if is_order_invariant(name)
        and (own := grid.get(name, metric, "changed"))
        and own.high is not None
        and own.high < changed.mean
    ]
    if not stable:
        if any(map(is_order_invariant, grid.methods)):
            return (
                f"report the mean over orders, because {share}, and no measured method changes clearly less"
            )
        methods = "pine if the model is loaded here, otherwise permutation_full"
        return f"measure an order-invariant method ({methods}), because {share}"
    differences = Row(grid, subject, metric).differences()
    gains = {name: differences[name].negative() for name in stable if name in differences}
    if not gains:
        return f"use {method_label(stable[0])}, because {share}"
    best = max(gains, key=lambda name: gains[name].mean)
    points = f"{estimated(gains[best]._replace(group='minus'))} percentage points"
    high = gains[best].high
    if high is not None and high < 0:
        text = f"report the mean over orders of {method_label(subject)}, because {share}"
        return f"{text}, and {method_label(best)} is less accurate by {points}"
    return f"use {method_label(best)}, because {share}; the difference in accuracy is {points}"
