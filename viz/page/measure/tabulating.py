"""Tables of the records so far: means by method and order, and by slot of the gold document."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import fmean

import numpy as np

from pine_engine.debias.table import is_order_invariant, measured_method, method_label, method_mark
from pine_engine.evaluation.answers import METRICS, Metric, differ, is_parsed, score_of
from pine_engine.evaluation.grid import Grid, Groups, Scores, make_grid
from pine_engine.evaluation.intervals import Estimate
from pine_engine.evaluation.records import Record
from pine_engine.evaluation.report.tables import Curve, CurveLine, drawn
from pine_engine.evaluation.settings import Key
from pine_engine.evaluation.slots import group_by_slot, is_flat
from viz.cards.measured import MeasuredRow, MeasuredTable
from viz.figures.frame import plain

TITLES: dict[Metric, str] = {
    "generated": "Accepted answers",
    "chosen": "Accepted choices: the most likely of those that the task knows",
    "logprob": "How likely the accepted answer is (log-probability, nats)",
}

CURVE_KINDS: tuple[Metric, ...] = ("logprob", "generated", "chosen")
"""Metrics of the curve by priority: log-probabilities show small changes."""

Y_TITLES: dict[Metric, str] = {
    "generated": "accepted answers, %",
    "chosen": "accepted choices, %",
    "logprob": "log-probability, nats",
}


def tabulate(
    records: Sequence[Record], planned: Collection[Key], tasks: Sequence[Grid] = ()
) -> list[MeasuredTable]:
    """Return a table for each metric; `tasks` are the estimates of all records, for the intervals."""
    orders = tuple(dict.fromkeys(order for _, _, order in planned))
    methods = tuple(dict.fromkeys(method for _, method, _ in planned))
    measured = [kind for kind in METRICS if any(_has(record, kind) for record in records)]
    return [
        MeasuredTable(
            title=TITLES[kind],
            is_share=kind != "logprob",
            orders=orders,
            rows=tuple(
                _row(records, method, kind, orders, tasks) for method in methods if _says(method, kind)
            ),
        )
        for kind in measured
    ]


def of_whole_examples(records: Sequence[Record], planned: Collection[Key]) -> list[Record]:
    """The records of the examples that are done with every method in every order."""
    done = {record.key for record in records}
    missing = {key[0] for key in planned if key not in done}
    return [record for record in records if record.example not in missing]


def slot_curves(records: Sequence[Record], planned: Collection[Key], setting: str) -> list[Curve]:
    """Return the curves over the slots of the gold document, one for each number of documents.

    All lines use the same complete examples. There is no curve for fewer than two slots.
    """
    whole = of_whole_examples(records, planned)
    kinds = (kind for kind in CURVE_KINDS if any(score_of(record, kind) is not None for record in whole))
    kind = next(kinds, None)
    if kind is None:
        return []
    grid = make_grid(whole)
    found = {
        scores.method: {
            size: _means(scores, table) for size, table in group_by_slot(scores.columns, kind).items()
        }
        for scores in (Scores(grid, method, kind) for method in grid.methods if _says(method, kind))
    }
    curves = []
    for size in sorted({size for tables in found.values() for size in tables}):
        tables = {
            method: of_size[size]
            for method, of_size in found.items()
            if of_size.get(size, {}).keys() - {None}
        }
        slots = sorted({slot for table in tables.values() for slot in table if slot is not None})
        levels = [_level(method, table, kind) for method, table in tables.items()]
        if len(slots) > 1:
            curves.append(
                Curve(
                    name="measured-by-slot",
                    title="Where the answer stood",
                    x_title=f"slot of the answer, of {size}",
                    y_title=Y_TITLES[kind],
                    places=tuple(str(slot + 1) for slot in slots),
                    lines=tuple(_line(method, table, slots, kind) for method, table in tables.items()),
                    levels=tuple(level for level in levels if level is not None),
                    note=f"Mean over the rows that are done; a thin line: shuffled. {plain(setting)}.",
                )
            )
    return curves


def _means(scores: Scores, table: Mapping[int | None, Groups]) -> dict[int | None, float]:
    """Return the means by slot, None: shuffled, of those in which any answer can be parsed."""
    return {
        slot: float(np.nanmean(scores.of(groups).numbers))
        for slot, groups in table.items()
        if any(scores.is_parsed(record) for records in groups for record in records)
    }


def _line(method: str, means: dict[int | None, float], slots: Sequence[int], kind: Metric) -> CurveLine:
    values = (_drawn(means[slot], kind) if slot in means else None for slot in slots)
    return CurveLine(method_label(method), method_mark(method), tuple(values))


def _drawn(mean: float, kind: Metric) -> Estimate:
    """Return a mean without an interval, in the unit of the curve."""
    return drawn(Estimate(mean, None, None, 0, metric=kind))


def _level(method: str, means: dict[int | None, float], kind: Metric) -> CurveLine | None:
    """Return the mean on shuffled documents, None if none can be parsed, or each slot has that mean."""
    if None not in means or is_flat((mean for slot, mean in means.items() if slot is not None), means[None]):
        return None
    return CurveLine(f"{method_label(method)}, shuffled", method_mark(method), (_drawn(means[None], kind),))


def _says(method: str, kind: Metric) -> bool:
    """Check whether a method has this metric; a wrapper may support only one of both."""
    measured = measured_method(method)
    return {
        "generated": measured.generates,
        "chosen": measured.scores_choices,
        "logprob": measured.scores_answers,
    }[kind]


def _has(record: Record, kind: Metric) -> bool:
    """Check whether a record has such an answer, scored or not."""
    return record.text is not None if kind == "generated" else score_of(record, kind) is not None


def _row(
    records: Sequence[Record],
    method: str,
    kind: Metric,
    orders: Sequence[str],
    tasks: Sequence[Grid],
) -> MeasuredRow:
    own = [record for record in records if record.method == method]
    found = (task.get(method, kind, "mean") for task in tasks)
    estimate = next((one for one in found if one is not None and one.is_parsed), None)
    compared, changed = _changes(own, kind)
    answered = [record for record in own if kind != "logprob" and _has(record, kind)]
    return MeasuredRow(
        label=method_label(method),
        is_order_invariant=is_order_invariant(method),
        values=tuple(
            _mean((record for record in own if record.order_name == order), kind) for order in orders
        ),
        mean=estimate.mean if estimate else _mean(own, kind),
        interval=estimate.interval if estimate else None,
        changed=None if kind == "logprob" else changed,
        compared=compared,
        unparsed=sum(not is_parsed(record, kind) for record in answered),
        answered=len(answered),
    )


def _mean(records: Iterable[Record], kind: Metric) -> float | None:
    """Return the mean over records with this metric; None if there are none or none can be parsed."""
    found = [(value, record) for record in records if (value := score_of(record, kind)) is not None]
    if not any(is_parsed(record, kind) for _, record in found):
        return None
    return fmean(value for value, _ in found)


def _changes(records: Sequence[Record], kind: Metric) -> tuple[int, int]:
    """Count the parsed examples with several orders of one method, and those with several answers."""
    answered: dict[str, list[Record]] = {}
    for record in records:
        if _has(record, kind):
            answered.setdefault(record.example, []).append(record)
    several = [found for found in answered.values() if len(found) > 1]
    changed = [differ(found, kind) for found in several]
    return sum(one is not None for one in changed), sum(one is True for one in changed)
