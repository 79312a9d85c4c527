"""Curves over the slots of the gold document, and bars of accuracies, as the paper's Figures 1, 4 and 5.

Figure 4 has a line per method. Figure 1 has areas: between vanilla and NIA, under which documents do not
attend to each other, is the effect of causal attention; between NIA and its lowest slot the effect of
positions. (The latter is an interpretation: the transcription does not say where that area ends below.)
"""

from collections.abc import Sequence
from dataclasses import replace

from pine_engine.evaluation.answers import METRICS
from pine_engine.evaluation.estimates import BASELINE
from pine_engine.evaluation.intervals import Estimate
from pine_engine.evaluation.method_names import method_mark, method_place
from pine_engine.evaluation.report.runs import MeasuredRun
from pine_engine.evaluation.report.tables import (
    METRIC_LABELS,
    Curve,
    CurveLine,
    Row,
    drawn,
    metric_rows,
    slots_of,
    task_label,
)
from pine_engine.evaluation.slots import is_flat

MIN_DOCUMENTS = 3
"""Number of documents from which on a curve over their slots is drawn."""

ALONE = "nia"
"""Method under which documents do not attend to each other, and slots differ by positions alone."""

SHUFFLES_ARE_LEVELS = (
    "A thin line across, without markers: shuffled documents, with the answer in any slot. It is left out "
    "where it lies on the line of its method."
)


def slot_curves(task: str, runs: Sequence[MeasuredRun]) -> list[Curve]:
    """Return a curve per run, metric and number of documents, with a line per method, then the areas.

    Scores of answers of which none can be parsed are not drawn.
    """
    curves, areas = [], []
    for number, run in enumerate(runs, start=1):
        for metric in METRICS:
            rows = [row for row in metric_rows(task, [run]) if row.metric == metric]
            sizes = {size for row in rows for size, _ in row.task.names(row.method, metric, "slot")}
            for size in sorted(sizes, key=int):
                of_size = [replace(row, part=size) for row in rows if _is_parsed(row)]
                curve = _slot_curve(f"{task}-{number}-{size}-{metric}", of_size)
                if curve is None:
                    continue
                notes = [curve.note, _not_drawn(rows)]
                curves.append(replace(curve, note=" ".join(filter(None, notes))))
                lines = {
                    row.method: line for row, line in zip(_with_slots(of_size), curve.lines, strict=True)
                }
                if {BASELINE, ALONE} <= lines.keys():
                    areas.append(_with_areas(curve, lines[BASELINE], lines[ALONE]))
    return curves + areas


def _slot_curve(name: str, rows: Sequence[Row]) -> Curve | None:
    """Return the curve of rows of one run, metric and number of documents; None if it is too small."""
    rows_with_slots = _with_slots(rows)
    places = sorted({slot for row in rows_with_slots for slot in slots_of(row)})
    if len(places) < 2 or int(rows[0].part) < MIN_DOCUMENTS:
        return None
    first = rows[0]
    lines = [CurveLine(row.label, method_mark(row.method), _line(row, places)) for row in rows_with_slots]
    levels = [level for row in rows if (level := _level(row))]
    notes = [SHUFFLES_ARE_LEVELS] if levels else []
    if not any(one and one.interval for line in lines for one in line.values):
        notes.insert(0, "Too few examples for intervals.")
    return Curve(
        name=name,
        title=f"{first.run.label}: {first.part} documents, {METRIC_LABELS[first.metric]}",
        x_title="slot of the document with the answer",
        y_title=METRIC_LABELS[first.metric],
        places=tuple(str(slot + 1) for slot in places),
        lines=tuple(lines),
        levels=tuple(levels),
        note=" ".join(notes),
    )


def _with_slots(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if any(one.is_parsed for one in slots_of(row).values())]


def _line(row: Row, places: Sequence[int]) -> tuple[Estimate | None, ...]:
    found = slots_of(row)
    return tuple(
        drawn(one) if (one := found.get(slot)) is not None and one.is_parsed else None for slot in places
    )


def _level(row: Row) -> CurveLine | None:
    """Return the score on shuffled documents, None if it equals the score in each slot."""
    shuffled = row.get("shuffled")
    if shuffled is None or not shuffled.is_parsed:
        return None
    if is_flat((one.mean for one in slots_of(row).values() if one.is_parsed), shuffled.mean):
        return None
    return CurveLine(f"{row.label}, shuffled", method_mark(row.method), (drawn(shuffled),))


def _with_areas(curve: Curve, vanilla: CurveLine, alone: CurveLine) -> Curve:
    """Return vanilla and NIA, with the areas between and below them."""
    means, alone_means = ([one.mean if one else None for one in line.values] for line in (vanilla, alone))
    lowest = min((value for value in alone_means if value is not None), default=None)
    floor = [None if value is None else lowest for value in alone_means]
    return replace(
        curve,
        name=f"{curve.name}-areas",
        title=f"{curve.title}: what causal attention and positions do",
        lines=tuple(map(_without_intervals, (vanilla, alone))),  # on the edges of the areas
        levels=(),
        areas=(("causal attention", alone_means, means), ("positions", floor, alone_means)),
        note=(
            f"Filled: what causal attention between documents adds, {vanilla.label} less {alone.label}, or "
            f"takes away where {alone.label} is higher. Hatched: what positions alone do, {alone.label} less "
            "its lowest slot. Like the areas of the paper’s Figure 1."
        ),
    )


def _without_intervals(line: CurveLine) -> CurveLine:
    return replace(line, values=tuple(one and one._replace(low=None, high=None) for one in line.values))


def accuracy_bars(task: str, runs: Sequence[MeasuredRun]) -> list[Curve]:
    """Return a group of bars per run, with a bar per method, for tasks without slots such as math.

    Answers of which none can be parsed have no bar.
    """
    rows = [row for row in metric_rows(task, runs) if row.metric == "generated"]
    has_slots = any(row.task.names(row.method, row.metric, "slot") for row in rows)
    if has_slots or not any(map(_is_parsed, rows)):
        return []
    groups = tuple(dict.fromkeys(row.run.label for row in rows))
    parsed = {(row.method, row.run.label): row for row in rows if _is_parsed(row)}
    lines = []
    for method in sorted(
        {row.method for row in parsed.values()}, key=lambda name: (method_place(name), name)
    ):
        found = [parsed.get((method, label)) for label in groups]
        means = tuple(drawn(mean) if row and (mean := row.get("mean")) else None for row in found)
        (label,) = {row.label for row in found if row}
        lines.append(CurveLine(label, method_mark(method), means))
    return [
        Curve(
            name=f"{task}-accuracy",
            title=f"{task_label(task)}: accuracy, mean over orders",
            x_title="model and data",
            y_title="accuracy, %",
            places=groups,
            lines=tuple(lines),
            has_bars=True,
            note=_not_drawn(rows),
        )
    ]


def _is_parsed(row: Row) -> bool:
    mean = row.get("mean")
    return mean is not None and mean.is_parsed


def _not_drawn(rows: Sequence[Row]) -> str:
    """Name the methods without parsed answers, with their runs if there are several."""
    has_runs = len({row.run.label for row in rows}) > 1
    unparsed = [row for row in rows if not _is_parsed(row)]
    names = [f"{row.label} ({row.run.label})" if has_runs else row.label for row in unparsed]
    return f"No answer can be read, and none is drawn, of: {'; '.join(names)}." if names else ""
