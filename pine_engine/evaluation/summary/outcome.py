"""What a method achieves by one kind of number: over all orders, in each order, and for each gold slot."""

from collections.abc import Callable, Iterator
from functools import partial
from statistics import fmean

from pine_engine.evaluation.records import Record
from pine_engine.evaluation.summary.grid import Column
from pine_engine.evaluation.summary.intervals import Estimate
from pine_engine.evaluation.summary.results import ArrangementValue, Measure, ShuffleValue, SlotValue
from pine_engine.evaluation.summary.scenarios import scenario_values
from pine_engine.evaluation.summary.sections import old_subset_weights, section_values, subset_weights
from pine_engine.evaluation.summary.slots import by_slot
from pine_engine.evaluation.summary.verdicts import (
    differ,
    first_document,
    is_as_stored,
    named_document,
    said,
)
from pine_engine.evaluation.summary.view import View, sure


def measure_of(view: View) -> Measure:
    """Everything that the view says. It has at least one number."""
    grid, values = view.grid, view.values
    found = {
        name: value
        for place, name in enumerate(grid.arrangements)
        if (value := view.mean(values[:, place], read=view.read[:, place])) is not None
    }
    # Those that the mean is over; of the others, an order in which none can be read has no accuracy.
    averaged = [
        name
        for place, name in enumerate(grid.arrangements)
        if name in found and view.averaged[:, place].any()
    ]
    compared = [name for name in averaged if found[name].is_read] or averaged
    over_orders = partial(view.mean, read=view.read_in_orders)
    slots = by_slot(view.columns, view.kind)
    weights = subset_weights(view.grid)
    old_weights = old_subset_weights(weights)
    (sections, total), (old_sections, old_total) = section_values(
        view, view.over_orders, view.read_in_orders, weights, old_weights
    )
    return Measure(
        kind=view.kind,
        mean=sure(over_orders(view.over_orders)),
        arrangements=tuple(
            ArrangementValue(name=name, value=value, **_answers(view, name)) for name, value in found.items()
        ),
        worst=min(compared, key=lambda name: found[name].mean),
        best=max(compared, key=lambda name: found[name].mean),
        worst_case=sure(over_orders(min(row, default=None) for row in view.in_orders)),
        best_case=sure(over_orders(max(row, default=None) for row in view.in_orders)),
        changed=_changed(view),
        unread=None if view.kind == "logprob" else view.mean(_over_averaged(view, _is_unread)),
        read=None if view.kind == "logprob" else view.mean(_over_averaged(view, _number_if_read)),
        slots=tuple(
            SlotValue(
                num_documents=one.num_documents,
                slot=slot,
                value=sure(view.mean(one.values[:, place], read=one.read[:, place])),
            )
            for one in slots
            for place, slot in enumerate(one.slots)
        ),
        shuffles=tuple(
            ShuffleValue(num_documents=one.num_documents, value=value)
            for one in slots
            if (value := view.mean(one.shuffled, read=one.shuffles_read)) is not None
        ),
        sections=sections,
        total=total,
        sections_v0_1_1=old_sections,
        total_v0_1_1=old_total,
        scenarios=scenario_values(view, weights, old_weights),
    )


def _changed(view: View) -> Estimate | None:
    """The share of examples without one answer in all orders; one that has a single order does not count."""
    if view.kind == "logprob":
        return None
    return view.mean(
        differ([column[name] for name in names], view.kind, view.task) if len(names) > 1 else None
        for column, names in zip(view.columns, view.grid.distinct, strict=True)
    )


def _over_averaged(view: View, value: Callable[[View, Record], float | None]) -> Iterator[float | None]:
    """Of each example, the mean of that value over the arrangements that it is averaged over."""
    for column, names in zip(view.columns, view.grid.averaged, strict=True):
        values = [found for name in names if (found := value(view, column[name])) is not None]
        yield fmean(values) if values else None


def _is_unread(view: View, record: Record) -> float:
    return float(said(record, view.kind, view.task) is None)


def _number_if_read(view: View, record: Record) -> float | None:
    return view.number(record) if view.reads(record) else None


def _answers(view: View, name: str) -> dict[str, Estimate | None]:
    """What the answers in one arrangement say, apart from being right."""
    kind, task = view.kind, view.task
    if kind == "logprob":
        return {}
    shares = {
        "changed": view.mean(_changed_from_stored(view, column, name) for column in view.columns),
        "unread": view.share(lambda record: said(record, kind, task) is None, name),
    }
    if task.has_letters:
        shares["says_a"] = view.share(lambda record: said(record, kind, task) == "A", name)
        shares["says_first"] = view.share(
            lambda record: named_document(record, said(record, kind, task)) == first_document(record), name
        )
    return shares


def _changed_from_stored(view: View, column: Column, name: str) -> float | None:
    """1 if the example's answer is another than as stored, 0 if not; None if it is not to be compared."""
    stored = next((record for record in column.values() if is_as_stored(record)), None)
    if stored is None or name not in column or is_as_stored(column[name]):
        return None
    return differ([stored, column[name]], view.kind, view.task)
