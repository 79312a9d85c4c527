"""What a report says plainly: how far the order decides, where PINE gains, and where it loses."""

from collections.abc import Iterator

from pine_engine.evaluation.cost import BASELINE
from pine_engine.evaluation.entries import summaries
from pine_engine.evaluation.method_names import method_label
from pine_engine.evaluation.results import Difference, Measure
from pine_engine.evaluation.runs import Run
from pine_engine.evaluation.summary import KINDS, TaskSummary
from pine_engine.evaluation.tables import KIND_LABELS, estimated, quantity, signed
from pine_engine.evaluation.verdicts import Kind

SUBJECT = "pine"
"""The method whose losses are named."""

FEWEST = 10
"""Examples below which resampling them says nothing."""

SWAPS = {
    "segments-swapped": "places alone",
    "labels-swapped": "letters alone",
    "swapped": "places and letters",
}
"""What each swap of two answers moves."""


def findings(task: str, run: Run) -> list[str]:
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
    yield from (_over_orders(name, measures[name]) for name in (BASELINE, SUBJECT) if name in measures)
    others = differences_of(summary, kind, SUBJECT)
    yield from (
        f"{subject} less {method_label(BASELINE)}: {_told(one)}." for one in others if one.than == BASELINE
    )
    losses = [one for one in others if one.value.mean < 0]
    if losses:
        yield f"{subject} loses to {'; '.join(f'{method_label(one.than)} ({_told(one)})' for one in losses)}."
    elif others:
        yield f"No other method here has a higher mean than {subject}."


def _over_orders(name: str, measure: Measure) -> str:
    """Its mean over orders, how far they lie apart, and how often they change the answer."""
    said = f"{method_label(name)} has {estimated(measure.mean, measure.kind)} as the mean over orders"
    values = {one.name: quantity(one.value.mean, measure.kind) for one in measure.arrangements}
    low, high = values[measure.worst], values[measure.best]
    if low != high:
        said += f", from {low} ({measure.worst}) to {high} ({measure.best})"
    swapped = {one.name: one.changed for one in measure.arrangements if one.name in SWAPS}
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


def _told(difference: Difference) -> str:
    """The difference, and whether its interval leaves out zero."""
    value = difference.value
    weight = "within chance" if value.low <= 0 <= value.high else "beyond chance"
    if value.n < FEWEST:
        weight = f"of {value.n} example{'s' if value.n != 1 else ''}, too few to tell"
    return f"{signed(value, difference.kind)}, {weight}"
