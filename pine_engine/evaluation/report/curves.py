"""Curves over the slots of the gold document, and bars of accuracies, as the paper's Figures 1, 4 and 5.

Figure 4 has a line per method. Figure 1 has areas: between vanilla and NIA, under which documents do not
attend to each other, is the effect of causal attention; between NIA and its lowest slot the effect of
positions. (The latter is an interpretation: the transcription does not say where that area ends below.)
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import product

from pine_engine.debias.table import method_label, method_mark, method_rank
from pine_engine.evaluation.answers import METRICS
from pine_engine.evaluation.estimates import BASELINE
from pine_engine.evaluation.intervals import Estimate
from pine_engine.evaluation.report.runs import MeasuredRun
from pine_engine.evaluation.report.tables import (
    METRIC_LABELS,
    Curve,
    CurveLine,
    drawn,
    metric_rows,
    note,
    task_label,
)
from pine_engine.evaluation.slots import is_flat
from pine_engine.evaluation.task_estimates import Row

MIN_DOCUMENTS = 3
"""Number of documents from which on a curve over their slots is drawn."""

ALONE = "nia"
"""Method under which documents do not attend to each other, and slots differ by positions alone."""


def slot_curves(task: str, runs: Sequence[MeasuredRun]) -> list[Curve]:
    """Return a curve per run, metric and number of documents, with a line per method, then the areas.

    Scores of answers of which none can be parsed are not drawn.
    """
    curves, areas = [], []
    for (number, run), metric in product(enumerate(runs, start=1), METRICS):
        rows = metric_rows(task, [run], [metric])
        parsed = [row for row in rows if row.mean.is_parsed]
        for size in sorted({size for row in parsed for size, _ in row.slots()}):
            lines = {row.method: line for row in parsed if any((line := _line(row, size)).values())}
            places = sorted({slot for line in lines.values() for slot in line})
            if size < MIN_DOCUMENTS or len(places) < 2:
                continue
            levels = [level for row in parsed if (level := _level(row, size))]
            has_intervals = any(one and one.interval for line in lines.values() for one in line.values())
            notes = [
                "" if has_intervals else "Too few examples for intervals.",
                note("levels") if levels else "",
                _not_drawn(rows),
            ]
            curve = Curve(
                name=f"{task}-{number}-{size}-{metric}",
                title=f"{run.label}: {size} documents, {METRIC_LABELS[metric]}",
                x_title="slot of the document with the answer",
                y_title=METRIC_LABELS[metric],
                places=tuple(str(slot + 1) for slot in places),
                lines=tuple(_curve_line(name, map(line.get, places)) for name, line in lines.items()),
                levels=tuple(levels),
                note=" ".join(filter(None, notes)),
            )
            curves.append(curve)
            if {BASELINE, ALONE} <= lines.keys():
                areas.append(_with_areas(curve, lines[BASELINE], lines[ALONE], places))
    return curves + areas


def _line(row: Row, size: int) -> dict[int, Estimate | None]:
    """Return the scores by slot for a number of documents, None for unparsed answers."""
    return {
        slot: drawn(one) if one.is_parsed else None for (of, slot), one in row.slots().items() if of == size
    }


def _curve_line(method: str, values: Iterable[Estimate | None], suffix: str = "") -> CurveLine:
    return CurveLine(f"{method_label(method)}{suffix}", method_mark(method), tuple(values))


def _level(row: Row, size: int) -> CurveLine | None:
    """Return the score on shuffled documents, None if it equals the score in each slot."""
    shuffled = row.get("shuffled", str(size))
    if shuffled is None or not shuffled.is_parsed:
        return None
    level = drawn(shuffled)
    if is_flat((one.mean for one in _line(row, size).values() if one), level.mean):
        return None
    return _curve_line(row.method, [level], ", shuffled")


def _with_areas(
    curve: Curve,
    vanilla: dict[int, Estimate | None],
    alone: dict[int, Estimate | None],
    places: Sequence[int],
) -> Curve:
    """Return vanilla and NIA, with the areas between and below them."""
    lines = [
        [one and one._replace(low=None, high=None) for one in map(values.get, places)]  # on edges of areas
        for values in (vanilla, alone)
    ]
    means, alone_means = ([one and one.mean for one in line] for line in lines)
    lowest = min(one.mean for one in alone.values() if one)
    floor = [None if mean is None else lowest for mean in alone_means]
    labels = {"vanilla": method_label(BASELINE), "alone": method_label(ALONE)}
    return replace(
        curve,
        name=f"{curve.name}-areas",
        title=f"{curve.title}: what causal attention and positions do",
        lines=(_curve_line(BASELINE, lines[0]), _curve_line(ALONE, lines[1])),
        levels=(),
        areas=(("causal attention", alone_means, means), ("positions", floor, alone_means)),
        note=note("areas", **labels),
    )


def accuracy_bars(task: str, runs: Sequence[MeasuredRun]) -> list[Curve]:
    """Return a group of bars per run, with a bar per method, for tasks without slots such as math.

    Answers of which none can be parsed have no bar.
    """
    rows = metric_rows(task, runs, ["generated"])
    parsed = {(row.method, row.run): drawn(row.mean) for row in rows if row.mean.is_parsed}
    if not parsed or any(row.slots() for row in rows):
        return []
    groups = tuple(dict.fromkeys(row.run for row in rows))
    methods = sorted({method for method, _ in parsed}, key=lambda name: (method_rank(name), name))
    lines = [_curve_line(name, [parsed.get((name, group)) for group in groups]) for name in methods]
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


def _not_drawn(rows: Sequence[Row]) -> str:
    """Name the methods without parsed answers, with their runs if there are several."""
    has_runs = len({row.run for row in rows}) > 1
    unparsed = [(method_label(row.method), row.run) for row in rows if not row.mean.is_parsed]
    names = [f"{label} ({run})" if has_runs else label for label, run in unparsed]
    return f"No answer can be read, and none is drawn, of: {'; '.join(names)}." if names else ""
