"""Curves over the slots of the gold document, and bars of accuracies, as the paper's Figures 1, 4 and 5.

Figure 4 has a line per method. Figure 1 has areas: between vanilla and NIA, under which documents do not
attend to each other, is the effect of causal attention; between NIA and its lowest slot the effect of
positions. (The latter is an interpretation: the transcription does not specify the lower edge of that area.)
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from pine_engine.lab.debias.measured import method_label, method_mark, method_rank
from pine_engine.lab.evaluation.estimates import BASELINE
from pine_engine.lab.evaluation.grid import METRICS
from pine_engine.lab.evaluation.intervals import Estimate
from pine_engine.lab.evaluation.report import tables
from pine_engine.lab.evaluation.report.runs import MeasuredRun
from pine_engine.lab.evaluation.report.tables import Curve, CurveLine, in_percent
from pine_engine.lab.evaluation.slots import is_flat
from pine_engine.lab.evaluation.task_estimates import Row
from pine_engine.prompts.tasks import TASKS

MIN_DOCUMENTS = 3  # number of documents from which on a curve over their slots is drawn
ALONE = "nia"  # method under which documents do not attend to each other, and slots differ by positions alone


def slot_curves(task: str, runs: Sequence[MeasuredRun]) -> list[Curve]:
    """Return a curve per run, metric and number of documents, with a line per method, then the areas."""
    curves: list[Curve] = []
    for number, run in enumerate(runs, start=1):
        for metric in METRICS:
            rows = tables.metric_rows(task, [run], [metric])
            for size in sorted({size for row in rows if row.mean.is_parsed for size, _ in row.slots()}):
                title = f"{run.label}: {size} documents, {tables.METRIC_LABELS[metric]}"
                curves += _curves(f"{task}-{number}-{size}-{metric}", title, rows, size)
    return sorted(curves, key=lambda curve: bool(curve.areas))


def _curves(name: str, title: str, rows: Sequence[Row], size: int) -> Iterator[Curve]:
    """Yield the curve of one number of documents, and its areas if it has both methods."""
    parsed = [row for row in rows if row.mean.is_parsed]
    lines = {row.method: line for row in parsed if (line := slot_scores(row, size))}
    slots = sorted({slot for row in parsed for of, slot in row.slots() if of == size})
    if size < MIN_DOCUMENTS or len(slots) < 2:
        return
    levels = tuple(level for row in parsed if (level := shuffled_level(row, size)))
    has_intervals = any(one.interval for line in lines.values() for one in line.values())
    notes = [
        "" if has_intervals else "Too few examples for intervals.",
        tables.text("levels") if levels else "",
        _not_drawn(rows),
    ]
    curve = Curve(
        name=name,
        title=title,
        x_title="slot of the document with the answer",
        y_title=tables.METRIC_LABELS[rows[0].metric],
        places=tuple(str(slot + 1) for slot in slots),
        lines=tuple(curve_line(method, map(line.get, slots)) for method, line in lines.items()),
        levels=levels,
        note=" ".join(filter(None, notes)),
    )
    yield curve
    if {BASELINE, ALONE} <= lines.keys():
        yield _with_areas(curve, lines[BASELINE], lines[ALONE], slots)


def slot_scores(row: Row, size: int) -> dict[int, Estimate]:
    """Return the parsed scores by slot for a number of documents."""
    return {slot: in_percent(one) for (of, slot), one in row.slots().items() if of == size and one.is_parsed}


def curve_line(method: str, values: Iterable[Estimate | None], suffix: str = "") -> CurveLine:
    """Return the line of a method, with its label and mark."""
    return CurveLine(f"{method_label(method)}{suffix}", method_mark(method), tuple(values))


def shuffled_level(row: Row, size: int) -> CurveLine | None:
    """Return the score on shuffled documents, None if it equals the score in each slot."""
    shuffled = row.get("shuffled", str(size))
    if shuffled is None or not shuffled.is_parsed:
        return None
    level = in_percent(shuffled)
    if is_flat((one.mean for one in slot_scores(row, size).values()), level.mean):
        return None
    return curve_line(row.method, [level], ", shuffled")


def _with_areas(
    curve: Curve, vanilla: dict[int, Estimate], alone: dict[int, Estimate], slots: Sequence[int]
) -> Curve:
    """Return vanilla and NIA without intervals, with the areas between and below them."""
    top, edge = ([one and one.mean for one in map(line.get, slots)] for line in (vanilla, alone))
    lowest = min(one.mean for one in alone.values())
    floor = [None if mean is None else lowest for mean in edge]
    lines = [
        curve_line(method, (one and one._replace(low=None, high=None) for one in map(line.get, slots)))
        for method, line in ((BASELINE, vanilla), (ALONE, alone))
    ]
    return replace(
        curve,
        name=f"{curve.name}-areas",
        title=f"{curve.title}: what causal attention and positions do",
        lines=tuple(lines),
        levels=(),
        areas=(("causal attention", edge, top), ("positions", floor, edge)),
        note=tables.text("areas", vanilla=method_label(BASELINE), alone=method_label(ALONE)),
    )


def accuracy_bars(task: str, runs: Sequence[MeasuredRun]) -> list[Curve]:
    """Return a group of bars per run, with a bar per method, for tasks without curves over slots.

    The bars are of the first metric with a parsed answer.
    """
    for metric in METRICS:
        rows = tables.metric_rows(task, runs, [metric])
        parsed = {(row.method, row.run): in_percent(row.mean) for row in rows if row.mean.is_parsed}
        if parsed:
            break
    else:
        return []
    if any(size >= MIN_DOCUMENTS for row in rows if len(row.slots()) > 1 for size, _ in row.slots()):
        return []
    groups = tuple(dict.fromkeys(row.run for row in rows))
    methods = sorted({method for method, _ in parsed}, key=lambda name: (method_rank(name), name))
    label = tables.METRIC_LABELS[metric]
    score = TASKS[task].nouns.score
    is_accuracy = metric == "generated"
    return [
        Curve(
            name=f"{task}-accuracy",
            title=f"{tables.task_label(task)}: {score if is_accuracy else label}, mean over orders",
            x_title="model and data",
            y_title=f"{score}, %" if is_accuracy else label,
            places=groups,
            lines=tuple(
                curve_line(name, [parsed.get((name, group)) for group in groups]) for name in methods
            ),
            has_bars=True,
            note=_not_drawn(rows),
        )
    ]


def _not_drawn(rows: Sequence[Row]) -> str:
    """Name the methods without parsed answers, with their runs if there are several."""
    has_runs = len({row.run for row in rows}) > 1
    unparsed = [(method_label(row.method), row.run) for row in rows if not row.mean.is_parsed]
    names = [f"{label} ({run})" if has_runs else label for label, run in unparsed]
    return f"No answer can be parsed, and none is drawn, of: {'; '.join(names)}." if names else ""
