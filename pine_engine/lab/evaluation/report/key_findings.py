"""Key findings of a run in sentences: effect of the order, and where PINE is found higher or lower."""

from collections.abc import Iterator, Mapping

from pine_engine.endpoint import NOT_GREEDY
from pine_engine.lab.debias.measured import method_label
from pine_engine.lab.evaluation.cautions import cautions
from pine_engine.lab.evaluation.estimates import BASELINE
from pine_engine.lab.evaluation.grid import METRICS
from pine_engine.lab.evaluation.intervals import MIN_EXAMPLES, Estimate
from pine_engine.lab.evaluation.report.runs import MeasuredRun
from pine_engine.lab.evaluation.report.tables import METRIC_LABELS, estimated, metric_rows, quantity
from pine_engine.lab.evaluation.task_estimates import DETECTABLE, Row
from pine_engine.prompts.tasks import TASKS

SUBJECT = "pine"  # method that is compared with all others

HIGHER, LOWER = "higher", "lower"
NO_DIFFERENCE, UNDECIDED = "no difference found", "undecided"

SWAPS = {
    "segments-swapped": "places alone",
    "labels-swapped": "letters alone",
    "swapped": "places and letters",
}
"""Parts of two answers that each swap exchanges."""


def key_findings(task: str, run: MeasuredRun) -> list[str]:
    """Return the findings about one run of a task, one text for each metric, and notes."""
    grids = [grid for grid in run.tasks if grid.task == task]
    texts = [f"{run.label}, {note}." for grid in grids for note in grid.repeats.notes()]
    texts += [] if run.info.is_greedy else [f"{run.label}: {NOT_GREEDY}."]
    for metric in METRICS:
        rows = {row.method: row for row in metric_rows(task, [run], [metric])}
        if sentences := list(_sentences(rows)):
            count = len(next(iter(rows.values())).grid.examples)
            texts.append(f"{run.label}, {METRIC_LABELS[metric]}, n = {count}: {' '.join(sentences)}")
    texts += [f"{run.label}, {note}." for grid in grids for note in grid.quoted_verdict_notes()]
    return texts + [f"{run.label}: {text}" for grid in grids for text in cautions(grid)]


def _sentences(rows: Mapping[str, Row]) -> Iterator[str]:
    for name in (BASELINE, SUBJECT):
        if name in rows:
            yield from _unparsed(rows[name])
            if _is_mostly_parsed(rows[name]):
                yield _over_orders(rows[name])
    for row in rows.values():
        yield from letter_recalls(row)
    if BASELINE in rows:
        yield from hard_to_detect(rows[BASELINE])
    if SUBJECT not in rows:
        return
    subject, differences = method_label(SUBJECT), rows[SUBJECT].differences()
    compared = {
        name: one
        for name, one in differences.items()
        if _is_mostly_parsed(rows[SUBJECT]) and _is_mostly_parsed(rows[name])
    }
    found: dict[str, list[str]] = {}
    for name, one in compared.items():
        found.setdefault(finding(one.mean, one.interval, one.num_examples), []).append(name)
    for name, one in compared.items():
        verdict = finding(one.mean, one.interval, one.num_examples)
        if name == BASELINE and verdict in (NO_DIFFERENCE, UNDECIDED):
            yield f"{subject} and {method_label(name)}, {verdict}: {difference_text(one)}."
        elif name == BASELINE or verdict == LOWER:
            yield f"{subject} is {verdict} than {method_label(name)}: {difference_text(one)}."
    starts = {NO_DIFFERENCE: f"{NO_DIFFERENCE} to", UNDECIDED: f"{UNDECIDED} against", HIGHER: "higher than"}
    for verdict, start in starts.items():
        if names := [method_label(name) for name in found.get(verdict, []) if name != BASELINE]:
            yield f"{subject}, {start}: {', '.join(names)}."


def _is_mostly_parsed(row: Row) -> bool:
    unparsed = row.get("unparsed")
    return unparsed is None or unparsed.mean < 0.5


def _unparsed(row: Row) -> Iterator[str]:
    """Yield how many answers cannot be parsed, if any, and how they are scored."""
    unparsed = row.get("unparsed")
    if unparsed is None or not unparsed.mean:
        return
    whose = f"{method_label(row.method)}’s answers"
    sizes = row.grid.num_documents
    chances = {TASKS[row.grid.task].sized(size).score("", ("any",)) for size in sizes}
    points = ({0.0: "nothing", 0.5: "half a point"}.get(one, f"{one:.2g} points") for one in sorted(chances))
    counts = " or ".join(points)
    if not row.mean.is_parsed:
        yield f"None of {whose} can be parsed, so its accuracy is unknown (each counts {counts})."
        return
    sentence = f"{estimated(unparsed)} % of {whose} cannot be parsed and count {counts}"
    if not _is_mostly_parsed(row):
        sentence += (
            f", too many to estimate its accuracy; of the others {estimated(row.get('parsed'))} % are right"
        )
    yield f"{sentence}."


def letter_recalls(row: Row) -> Iterator[str]:
    """Yield the recall of each letter of a multiple choice, and their spread; nothing for few examples."""
    for size, recalls in row.letter_sizes.items():
        if (found := row.get("recall spread", str(size))) is None or found.interval is None:
            continue
        shares = ", ".join(f"{letter} {quantity(one.mean)}" for letter, one in recalls.items())
        letters = f"recall per letter of {size}" if len(row.letter_sizes) > 1 else "recall per letter"
        yield f"{method_label(row.method)}, {letters}: {shares} %; spread {estimated(found)} points."


def hard_to_detect(row: Row) -> Iterator[str]:
    """Yield the accuracy of a judge if position bias is hard to detect there."""
    if row.is_judge and row.bias_json() and row.mean.is_parsed and not row.is_bias_detectable:
        low, high = (f"{100 * end:.0f}" for end in DETECTABLE)
        accuracy = f"{method_label(row.method)}’s accuracy is {estimated(row.mean)} %"
        yield f"{accuracy}, not {low} to {high} %: position bias is hard to detect there (arXiv 2607.20864)."


def _over_orders(row: Row) -> str:
    """Return the mean over orders, its range, and how often the order changes the answer."""
    sentence = f"{method_label(row.method)} has {estimated(row.mean)} as the mean over orders"
    orders = row.means("order", row.grid.orders)
    if extremes := row.extreme_orders():
        worst, best = extremes
        low, high = (quantity(orders[name].mean, row.metric) for name in extremes)
        sentence += f", from {low} ({worst}) to {high} ({best})" if low != high else ""
    unparsed = [name for name, one in orders.items() if not one.is_parsed]
    if unparsed:
        sentence += f"; none can be parsed in {', '.join(unparsed)}"
    changes = [
        f"{_share(row, one)} when {SWAPS[name]} are swapped"
        for name in orders
        if name in SWAPS and (one := row.get("order changed", name))
    ]
    if not changes and (changed := row.get("changed")):
        changes = [f"{_share(row, changed)} with the order"]
    if again := row.get("again changed"):
        changes.append(f"{_share(row, again)} in the same order again")
    if changes:
        sentence += f"; its answer changes in {', '.join(changes)}"
    return f"{sentence}."


def _share(row: Row, part: Estimate) -> str:
    """Return a share, with its number of examples if that is not the row's."""
    count = "" if part.num_examples == row.mean.num_examples else f" (n = {part.num_examples})"
    return f"{quantity(part.mean)} %{count}"


def finding(mean: float, interval: tuple[float, float] | None, num_examples: int) -> str:
    """Return what the interval of a difference shows; undecided if it leaves out zero for few examples."""
    if interval is None or interval[0] <= 0 <= interval[1]:
        return NO_DIFFERENCE
    if num_examples < MIN_EXAMPLES:
        return UNDECIDED
    return HIGHER if mean > 0 else LOWER


def difference_text(difference: Estimate) -> str:
    """Return a difference with its unit, its interval and its number of examples."""
    count = difference.num_examples
    unit = "nats" if difference.metric == "logprob" else "percentage points"
    mean, *ends = (
        quantity(value, difference.metric, is_signed=True)
        for value in (difference.mean, *(difference.interval or ()))
    )
    interval = f" (interval {' to '.join(ends)})" if ends else ""
    few = f", at least {MIN_EXAMPLES} are needed to tell" if count < MIN_EXAMPLES else ""
    return f"{mean} {unit}{interval}, {count} example{'s' if count != 1 else ''}{few}"
