"""Records as the page shows them while they come: means by method and order, and by slot of the answer."""

from collections.abc import Collection, Iterable, Sequence
from statistics import fmean

from pine_engine.evaluation.records import Key, Record
from pine_engine.evaluation.summary import KINDS, Summary
from pine_engine.evaluation.tables import method_label, method_mark
from pine_engine.evaluation.verdicts import Kind, meant, number
from pine_engine.measured import measured_method
from pine_engine.tasks import get_task
from viz.chart import Series
from viz.measured import MeasuredRow, MeasuredTable, SlotCurve

TITLES: dict[Kind, str] = {
    "generated": "Accepted answers",
    "chosen": "Accepted choices: the most likely of those that the task knows",
    "logprob": "How likely the accepted answer is (log-probability, nats)",
}

CURVE_KINDS: tuple[Kind, ...] = ("logprob", "generated", "chosen")
"""What the curve shows, the first that was measured: log-probabilities tell small changes."""

Y_TITLES: dict[Kind, str] = {
    "generated": "accepted answers, %",
    "chosen": "accepted choices, %",
    "logprob": "log-probability, nats",
}


def tabulate(
    records: Sequence[Record], planned: Collection[Key], summary: Summary | None = None
) -> list[MeasuredTable]:
    """A table for each kind of number that was measured.

    planned: the keys of all records that there will be. summary: of all records, for the intervals.
    """
    orders = tuple(dict.fromkeys(order for _, _, order in planned))
    methods = tuple(dict.fromkeys(method for _, method, _ in planned))
    measured = [kind for kind in KINDS if any(_has(record, kind) for record in records)]
    return [
        MeasuredTable(
            title=TITLES[kind],
            is_share=kind != "logprob",
            orders=orders,
            rows=tuple(
                _row(records, method, kind, orders, summary) for method in methods if _says(method, kind)
            ),
        )
        for kind in measured
    ]


def slot_curve(records: Sequence[Record], setting: str) -> SlotCurve | None:
    """The curve over the slots of the document with the answer; None if it stood in fewer than two."""
    slots = tuple(sorted({record.gold_slot for record in records if record.gold_slot is not None}))
    kinds = (kind for kind in CURVE_KINDS if any(number(record, kind) is not None for record in records))
    kind = next(kinds, None)
    if kind is None or len(slots) < 2:
        return None
    scale = 1.0 if kind == "logprob" else 100.0
    lines = []
    for method in dict.fromkeys(record.method for record in records if _says(record.method, kind)):
        own = [record for record in records if record.method == method]
        means = [_mean((record for record in own if record.gold_slot == slot), kind) for slot in slots]
        values = tuple(None if mean is None else scale * mean for mean in means)
        lines.append(Series(method_label(method), values, method_mark(method)))
    return SlotCurve(Y_TITLES[kind], setting, slots, tuple(lines))


def _says(method: str, kind: Kind) -> bool:
    """Whether a method has such numbers; a wrapper may be about answers alone, or about choices."""
    measured = measured_method(method)
    return {
        "generated": measured.writes,
        "chosen": measured.weighs_choices,
        "logprob": measured.weighs_answers,
    }[kind]


def _has(record: Record, kind: Kind) -> bool:
    """True if there is such an answer, also where nothing says whether it is right."""
    return record.text is not None if kind == "generated" else number(record, kind) is not None


def _row(
    records: Sequence[Record], method: str, kind: Kind, orders: Sequence[str], summary: Summary | None
) -> MeasuredRow:
    own = [record for record in records if record.method == method]
    estimate = next(
        (
            measure.mean
            for task in (summary.tasks if summary else ())
            for one in task.methods
            if one.method == method and (measure := one.measure(kind)) is not None
        ),
        None,
    )
    compared, changed = _changes(own, kind)
    return MeasuredRow(
        label=method_label(method),
        promises_invariance=measured_method(method).promises_invariance,
        values=tuple(
            _mean((record for record in own if record.arrangement == order), kind) for order in orders
        ),
        mean=estimate.mean if estimate else _mean(own, kind),
        interval=(estimate.low, estimate.high) if estimate else None,
        changed=None if kind == "logprob" else changed,
        compared=compared,
    )


def _mean(records: Iterable[Record], kind: Kind) -> float | None:
    """The mean of the records that have such a number, None if none has."""
    values = [value for record in records if (value := number(record, kind)) is not None]
    return fmean(values) if values else None


def _changes(records: Sequence[Record], kind: Kind) -> tuple[int, int]:
    """Of one method: examples answered in several orders, and those of them with several answers."""
    answers: dict[str, list[str]] = {}
    for record in records:
        if _has(record, kind):
            answers.setdefault(record.example, []).append(meant(record, kind, get_task(record.task)))
    several = [said for said in answers.values() if len(said) > 1]
    return len(several), sum(len(set(said)) > 1 for said in several)
