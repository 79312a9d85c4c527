"""What a report says plainly: how far the order decides, where PINE gains, and where it loses."""

from collections.abc import Iterator

from pine_engine.evaluation.report.method_rows import summaries
from pine_engine.evaluation.report.runs import MeasuredRun
from pine_engine.evaluation.report.tables import KIND_LABELS, estimated, quantity, signed, signed_quantity
from pine_engine.evaluation.summary.intervals import FEWEST
from pine_engine.evaluation.summary.method_names import method_label
from pine_engine.evaluation.summary.results import Difference, Measure
from pine_engine.evaluation.summary.summarize import BASELINE, TaskSummary
from pine_engine.evaluation.summary.verdicts import KINDS, Kind
from pine_engine.prompts.tasks import Task, get_task

SUBJECT = "pine"
"""The method whose losses are named."""

SWAPS = {
    "segments-swapped": "places alone",
    "labels-swapped": "letters alone",
    "swapped": "places and letters",
}
"""What each swap of two answers moves."""


def findings(task: str, run: MeasuredRun) -> list[str]:
    """Sentences about one run of a task, for each kind of number that it has."""
    return [
        f"{run.label}, {KIND_LABELS[kind]}, n = {summary.examples}: {' '.join(sentences)}"
        for _, summary in summaries(task, [run])
        for kind in KINDS
        if (sentences := list(_of_kind(summary, kind)))
    ]


def differences_of(summary: TaskSummary, kind: Kind, method: str) -> list[Difference]:
    """How much more the method has than each other one."""
    found = []
    for one in summary.differences:
        if one.kind == kind and method in (one.method, one.than):
            other = one.than if one.method == method else one.method
            value = one.value if one.method == method else one.value.negative()
            found.append(Difference(kind=kind, method=method, than=other, value=value))
    return found


def _of_kind(summary: TaskSummary, kind: Kind) -> Iterator[str]:
    measures = {
        method.method: measure for method in summary.methods if (measure := method.measure(kind)) is not None
    }
    subject = method_label(SUBJECT)
    for name in (BASELINE, SUBJECT):
        if name in measures:
            yield from _unread(name, measures[name], get_task(summary.task))
            if measures[name].is_mostly_parsed:
                yield _over_orders(name, measures[name])
    every = differences_of(summary, kind, SUBJECT)
    others = [
        one for one in every if measures[SUBJECT].is_mostly_parsed and measures[one.than].is_mostly_parsed
    ]
    yield from (
        f"{subject} less {method_label(BASELINE)}: {_in_words(one)}."
        for one in others
        if one.than == BASELINE
    )
    losses = [one for one in others if one.value.mean < 0]
    if losses:
        named = [f"{method_label(one.than)} ({_in_words(one)})" for one in losses]
        yield f"{subject} loses to {'; '.join(named)}."
    elif others:
        legible = "" if len(others) == len(every) else " whose answers can mostly be read"
        yield f"No other method here{legible} has a higher mean than {subject}."


def _unread(name: str, measure: Measure, task: Task) -> Iterator[str]:
    """How many of its answers cannot be read, if any, and how they are scored."""
    unparsed = measure.unparsed
    if unparsed is None or not unparsed.mean:
        return
    whose = f"{method_label(name)}’s answers"
    scored = task.score("", ("any",))
    counts = "half a point" if scored else "nothing"
    if not measure.is_read:
        yield f"None of {whose} can be read, so nothing is known of its accuracy (each counts {counts})."
        return
    said = f"{estimated(unparsed)} % of {whose} cannot be read and count {counts}"
    if not measure.is_mostly_parsed:
        said += f", too many to speak of its accuracy; of the others {estimated(measure.read)} % are right"
    yield f"{said}."


def _over_orders(name: str, measure: Measure) -> str:
    """Its mean over orders, how far they lie apart, and how often they change the answer."""
    said = f"{method_label(name)} has {estimated(measure.mean, measure.kind)} as the mean over orders"
    values = {one.name: quantity(one.value.mean, measure.kind) for one in measure.order_names}
    low, high = values[measure.worst], values[measure.best]
    if low != high:
        said += f", from {low} ({measure.worst}) to {high} ({measure.best})"
    unparsed = [one.name for one in measure.order_names if not one.value.is_read]
    if unparsed:
        said += f"; none can be read in {', '.join(unparsed)}"
    swapped = {one.name: one.changed for one in measure.order_names if one.name in SWAPS}
    changes = [
        f"{quantity(changed.mean, measure.kind)} % when {SWAPS[swap]} are swapped"
        for swap, changed in swapped.items()
        if changed is not None
    ]
    if not changes and measure.changed is not None:
        changes = [f"{quantity(measure.changed.mean, measure.kind)} % with the order"]
    if changes:
        said += f"; its answer changes in {', '.join(changes)}"
    return f"{said}."


def _in_words(difference: Difference) -> str:
    """The difference, and whether its interval leaves out zero."""
    value = difference.value
    if value.interval is None or value.n < FEWEST:
        of = f"of {value.n} example{'s' if value.n != 1 else ''}"
        return f"{signed_quantity(value.mean, difference.kind)} {of}, too few to tell"
    weight = "within chance" if value.interval[0] <= 0 <= value.interval[1] else "beyond chance"
    return f"{signed(value, difference.kind)}, {weight}"
