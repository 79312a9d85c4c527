"""Key findings of a run in sentences: effect of the order, and where PINE gains and loses."""

from collections.abc import Iterator

from pine_engine.evaluation.answers import METRICS
from pine_engine.evaluation.estimates import BASELINE, TaskEstimates
from pine_engine.evaluation.intervals import MIN_EXAMPLES, Estimate
from pine_engine.evaluation.method_names import method_label
from pine_engine.evaluation.report.runs import MeasuredRun
from pine_engine.evaluation.report.tables import METRIC_LABELS, Row, estimated, quantity, runs_of
from pine_engine.prompts.tasks import get_task

SUBJECT = "pine"
"""Method whose losses are named."""

SWAPS = {
    "segments-swapped": "places alone",
    "labels-swapped": "letters alone",
    "swapped": "places and letters",
}
"""What each swap of two answers moves."""


def findings(task: str, run: MeasuredRun) -> list[str]:
    """Return the findings about one run of a task, one text for each metric."""
    return [
        f"{run.label}, {METRIC_LABELS[metric]}, n = {found.num_examples}: {' '.join(sentences)}"
        for _, found in runs_of(task, [run])
        for metric in METRICS
        if (sentences := list(_sentences(run, found, metric)))
    ]


def _sentences(run: MeasuredRun, task: TaskEstimates, metric: str) -> Iterator[str]:
    rows = {name: Row(run, task, name, metric) for name in task.methods if task.get(name, metric, "mean")}
    for name in (BASELINE, SUBJECT):
        if name in rows:
            yield from _unparsed(rows[name])
            if _is_legible(rows[name]):
                yield _over_orders(rows[name])
    subject = method_label(SUBJECT)
    differences = task.differences(SUBJECT, metric)
    compared = {
        name: one
        for name, one in differences.items()
        if _is_legible(rows[SUBJECT]) and _is_legible(rows[name])
    }
    if BASELINE in compared:
        yield f"{subject} less {method_label(BASELINE)}: {_in_words(compared[BASELINE])}."
    losses = [f"{method_label(name)} ({_in_words(one)})" for name, one in compared.items() if one.mean < 0]
    if losses:
        yield f"{subject} loses to {'; '.join(losses)}."
    elif compared:
        legible = "" if len(compared) == len(differences) else " whose answers can mostly be read"
        yield f"No other method here{legible} has a higher mean than {subject}."


def _is_legible(row: Row) -> bool:
    unparsed = row.get("unparsed")
    return unparsed is None or unparsed.mean < 0.5


def _unparsed(row: Row) -> Iterator[str]:
    """Yield how many answers cannot be parsed, if any, and how they are scored."""
    unparsed, mean = row.get("unparsed"), row.get("mean")
    if unparsed is None or not unparsed.mean or mean is None:
        return
    whose = f"{row.label}’s answers"
    counts = "half a point" if get_task(row.task.task).score("", ("any",)) else "nothing"
    if not mean.is_parsed:
        yield f"None of {whose} can be read, so nothing is known of its accuracy (each counts {counts})."
        return
    sentence = f"{estimated(unparsed)} % of {whose} cannot be read and count {counts}"
    if not _is_legible(row):
        sentence += f", too many to speak of its accuracy; of the others {row.cell('parsed')} % are right"
    yield f"{sentence}."


def _over_orders(row: Row) -> str:
    """Return the mean over orders, its range, and how often the order changes the answer."""
    sentence = f"{row.label} has {row.cell('mean')} as the mean over orders"
    orders = {name: one for name in row.task.orders if (one := row.get("order", name))}
    worst, best = row.task.extreme_orders(row.method, row.metric)
    low, high = (quantity(orders[name].mean, row.metric) for name in (worst, best))
    if low != high:
        sentence += f", from {low} ({worst}) to {high} ({best})"
    unparsed = [name for name, one in orders.items() if not one.is_parsed]
    if unparsed:
        sentence += f"; none can be read in {', '.join(unparsed)}"
    changes = [
        f"{quantity(one.mean)} % when {SWAPS[name]} are swapped"
        for name in orders
        if name in SWAPS and (one := row.get("order changed", name))
    ]
    if not changes and (changed := row.get("changed")):
        changes = [f"{quantity(changed.mean)} % with the order"]
    if changes:
        sentence += f"; its answer changes in {', '.join(changes)}"
    return f"{sentence}."


def _in_words(difference: Estimate) -> str:
    """Return a difference, and if its interval contains zero."""
    count = difference.num_examples
    if difference.interval is None or count < MIN_EXAMPLES:
        mean = quantity(difference.mean, difference.metric, is_signed=True)
        return f"{mean} of {count} example{'s' if count != 1 else ''}, too few to tell"
    low, high = difference.interval
    return f"{estimated(difference)}, {'within' if low <= 0 <= high else 'beyond'} chance"
