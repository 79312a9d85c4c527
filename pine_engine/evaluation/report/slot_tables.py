"""What the slot of the document with the answer changes: the curves of the paper, and their numbers.

Its Figure 4 has a line per method. Its Figure 1 has areas: what causal attention between documents adds lies
between vanilla and NIA, under which documents do not see each other; what positions alone do, between NIA
and its lowest slot. (The latter is our reading: where that area ends below, its transcription does not say.)
"""

from collections.abc import Sequence
from dataclasses import replace

from pine_engine.evaluation.report.method_rows import HEADS, MethodRow, from_to, method_rows, not_drawn
from pine_engine.evaluation.report.runs import MeasuredRun
from pine_engine.evaluation.report.tables import (
    KIND_LABELS,
    Between,
    Curve,
    CurveLine,
    Level,
    Table,
    scale,
    scaled,
)
from pine_engine.evaluation.summary.intervals import Estimate
from pine_engine.evaluation.summary.method_names import method_label, method_mark
from pine_engine.evaluation.summary.results import Measure, SlotValue
from pine_engine.evaluation.summary.slots import is_flat
from pine_engine.evaluation.summary.summarize import BASELINE
from pine_engine.evaluation.summary.verdicts import KINDS, Kind

SMALLEST_CURVE = 3
"""Documents from which on a curve over their slots is drawn."""

ALONE = "nia"
"""The method under which documents do not see each other, and only positions tell slots apart."""

SHUFFLES_ARE_LEVELS = (
    "A thin line across, without markers: shuffled documents, with the answer in any slot. It is left out "
    "where it lies on the line of its method."
)


def slot_results(task: str, runs: Sequence[MeasuredRun]) -> Table | None:
    """Every method with the gold document in each slot, and shuffled; None if that was not moved."""
    found = [row for row in method_rows(task, runs) if len(row.measure.slots) > 1]
    slots = sorted({one.slot for row in found for one in row.measure.slots})
    if not slots:
        return None
    has_shuffles = any(row.measure.shuffles for row in found)
    rows = []
    for row in found:
        for size in sorted({one.num_documents for one in row.measure.slots}):
            values = {one.slot: one.value for one in row.measure.slots if one.num_documents == size}
            cells = [row.written(values.get(slot)) for slot in slots]
            if has_shuffles:
                cells.append(row.written(_shuffled(row.measure, size)))
            counts = [value.n for value in values.values()]
            rows.append((*row.heads, str(size), from_to(counts), *cells))
    return Table(
        title="With the answer in each slot",
        columns=(
            *(*HEADS, "documents", "n", *(f"slot {slot + 1}" for slot in slots)),
            *(["shuffled"] if has_shuffles else []),
        ),
        rows=tuple(rows),
        heads=len(HEADS) + 1,
        note=(
            "The slot of the document that holds the answer, from 1, so that gold-at:0 is slot 1. The same "
            "examples in each slot of a size, with their other documents in the same order; shuffles stand "
            "apart, and count in no slot."
        ),
    )


def slot_curves(task: str, runs: Sequence[MeasuredRun]) -> tuple[Curve, ...]:
    """A line per method over the slots of the gold document, a curve per run, size and kind of number.

    What a method has on shuffled documents is a level of its own, as the dashed lines of the paper's
    Figure 4; where no order changes anything it lies on the method's line, and is not drawn again. The score
    of answers of which none can be read is no accuracy, and is not drawn.
    """
    curves, areas = [], []
    for number, run in enumerate(runs, start=1):
        rows = list(method_rows(task, [run]))
        for kind in KINDS:
            all_of_kind = [row for row in rows if row.measure.kind == kind]
            of_kind = [row for row in all_of_kind if row.measure.is_read]
            sizes = sorted({one.num_documents for row in of_kind for one in row.measure.slots})
            for size in sizes:
                slots = {
                    row.method.method: found
                    for row in of_kind
                    if (found := [one for one in row.measure.slots if one.num_documents == size])
                    and any(one.value.is_read for one in found)
                }
                places = sorted({one.slot for values in slots.values() for one in values})
                if size < SMALLEST_CURVE or len(places) < 2:
                    continue
                levels = tuple(level for row in of_kind if (level := _level(row, size)) is not None)
                lines = tuple(_line(name, kind, places, values) for name, values in slots.items())
                notes = [SHUFFLES_ARE_LEVELS] if levels else []
                notes += not_drawn(all_of_kind)
                if not any(any(line.intervals) for line in lines):
                    notes.insert(0, "Too few examples for intervals.")
                curve = Curve(
                    name=f"{task}-{number}-{size}-{kind}",
                    title=f"{run.label}: {size} documents, {KIND_LABELS[kind]}",
                    x_title="slot of the document with the answer",
                    y_title=KIND_LABELS[kind],
                    places=tuple(str(slot + 1) for slot in places),
                    lines=lines,
                    levels=levels,
                    note=" ".join(notes),
                )
                curves.append(curve)
                if {BASELINE, ALONE} <= slots.keys():
                    of = {name: line for name, line in zip(slots, curve.lines, strict=True)}
                    areas.append(_with_areas(curve, of[BASELINE], of[ALONE]))
    return *curves, *areas


def _with_areas(curve: Curve, vanilla: CurveLine, alone: CurveLine) -> Curve:
    """Vanilla and NIA alone, with what lies between them and below."""
    lowest = min((value for value in alone.values if value is not None), default=None)
    floor = tuple(None if value is None else lowest for value in alone.values)
    return Curve(
        name=f"{curve.name}-areas",
        title=f"{curve.title}: what causal attention and positions do",
        x_title=curve.x_title,
        y_title=curve.y_title,
        places=curve.places,
        lines=tuple(replace(line, intervals=()) for line in (vanilla, alone)),  # on the edges of the areas
        areas=(
            Between("causal attention", alone.values, vanilla.values),
            Between("positions", floor, alone.values),
        ),
        note=(
            f"Filled: what causal attention between documents adds, {vanilla.label} less {alone.label}, or "
            f"takes away where {alone.label} is higher. Hatched: what positions alone do, {alone.label} less "
            "its lowest slot. Like the areas of the paper’s Figure 1."
        ),
    )


def _line(method: str, kind: Kind, places: Sequence[int], values: Sequence[SlotValue]) -> CurveLine:
    by_slot = {one.slot: one.value for one in values}
    found = [one if (one := by_slot.get(slot)) and one.is_read else None for slot in places]
    return CurveLine(
        label=method_label(method),
        mark=method_mark(method),
        values=tuple(None if one is None else scale(kind) * one.mean for one in found),
        intervals=tuple(None if one is None else _interval(one, kind) for one in found),
    )


def _level(row: MethodRow, size: int) -> Level | None:
    """What the method has on shuffled documents, None if that is what it has in every slot."""
    shuffled, kind = _shuffled(row.measure, size), row.measure.kind
    in_slots = (one.value for one in row.measure.slots if one.num_documents == size)
    if shuffled is None or not shuffled.is_read:
        return None
    if is_flat((value.mean for value in in_slots if value.is_read), shuffled.mean):
        return None
    return Level(
        label=f"{method_label(row.method.method)}, shuffled",
        mark=method_mark(row.method.method),
        value=scale(kind) * shuffled.mean,
        interval=_interval(shuffled, kind),
    )


def _shuffled(measure: Measure, size: int) -> Estimate | None:
    return next((one.value for one in measure.shuffles if one.num_documents == size), None)


def _interval(estimate: Estimate, kind: Kind) -> tuple[float, float] | None:
    return None if estimate.interval is None else scaled(estimate.interval, kind)
