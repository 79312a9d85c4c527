"""Tables of a task over runs: all orders, each order and slot, a judge's scenarios and subsets, and costs."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from pine_engine.lab.debias.measured import method_label
from pine_engine.lab.evaluation.cautions import cautions, scoring_sentence
from pine_engine.lab.evaluation.estimates import BASELINE
from pine_engine.lab.evaluation.grid import BETWEEN
from pine_engine.lab.evaluation.intervals import Estimate
from pine_engine.lab.evaluation.report import tables
from pine_engine.lab.evaluation.report.runs import NONE, MeasuredRun, from_to
from pine_engine.lab.evaluation.report.tables import (
    HEADS,
    METRIC_LABELS,
    Columns,
    Table,
    estimated,
    metric_rows,
    pivot,
)
from pine_engine.lab.evaluation.slots import OVER_ORDERS, SCENARIOS
from pine_engine.lab.evaluation.task_estimates import Row
from pine_engine.prompts.tasks import TASKS

BY_SLOT = "gold-at:"  # prefix of the orders that are in the table of slots

NUM_EXAMPLES: Columns = {"n": lambda row: str(row.mean.num_examples)}

SCENARIO_HEADS: Columns = {**HEADS, "scenario": lambda row: row.part}


def main_results(task: str, runs: Sequence[MeasuredRun]) -> Table:
    """Return each method over all orders, its worst and best order, and how often its answer changes."""
    rows = metric_rows(task, runs)
    shares = {
        "cannot be parsed, %": "unparsed",
        "several verdicts, %": "several verdicts",
        "end before the answer, %": "unfinished",
    }
    shown = {
        title: group
        for title, group in shares.items()
        if any(one.mean for row in rows if (one := row.get(group)))
    }
    columns: Columns = {
        **HEADS,
        **NUM_EXAMPLES,
        **shown,
        "mean over orders": "mean",
        "more than vanilla": _gain,
        "worst order": partial(_extreme, index=0),
        "best order": partial(_extreme, index=1),
    }
    orders = {run.label: ", ".join(found.averaged_orders) for run, found in tables.runs_of(task, runs)}
    if len(set(orders.values())) == 1:
        averaged = f"Mean over: {next(iter(orders.values()))}."
    else:
        averaged = " ".join(f"Mean of {label} over: {names}." for label, names in orders.items())
    remarks: dict[str, list[str]] = {}
    for run, grid in tables.runs_of(task, runs):
        for text in (scoring_sentence(grid), *cautions(grid)):
            remarks.setdefault(text, []).append(run.label)
    texts = [f"{', '.join(of)}: {text}" if len(of) < len(orders) else text for text, of in remarks.items()]
    return pivot("main_results", rows, columns, orders=" ".join([*texts, averaged]))


def _extreme(row: Row, *, index: int) -> str:
    """Return the mean of the worst (0) or best order (1), with its name if the orders differ."""
    orders, extremes = row.common_orders(), row.extreme_orders()
    if extremes is None:
        return NONE
    name = extremes[index]
    if not orders[name].is_parsed:
        return estimated(orders[name])
    is_one = len({(one.mean, one.is_parsed) for one in orders.values()}) == 1
    return f"{'every order' if is_one else name}: {estimated(orders[name])}"


def _gain(row: Row) -> str:
    """Return the paired difference to the baseline, none if the answers of either cannot be parsed."""
    baseline = row.grid.get(BASELINE, row.metric, "mean")
    if not row.mean.is_parsed or baseline is None or not baseline.is_parsed:
        return NONE
    return estimated(row.differences().get(BASELINE))


def order_results(task: str, runs: Sequence[MeasuredRun]) -> Iterator[Table]:
    """Yield each method in each order, nothing if all orders are in the table of slots."""
    rows = metric_rows(task, runs)
    found = dict.fromkeys(name for row in rows for name in row.means("order", row.grid.orders))
    orders: Columns = {name: ("order", name) for name in found if not name.startswith(BY_SLOT)}
    if orders:
        yield pivot("order_results", rows, {**HEADS, **NUM_EXAMPLES, "mean over orders": "mean", **orders})


def slot_results(task: str, runs: Sequence[MeasuredRun]) -> Iterator[Table]:
    """Yield each method by slot of the gold document and shuffled, nothing for fewer than two slots."""
    rows = [
        replace(row, part=str(size))
        for row in metric_rows(task, runs)
        for size in dict.fromkeys(size for size, _ in row.slots())
        if len(row.slots()) > 1
    ]
    slots = sorted({slot for row in rows for _, slot in row.slots()})
    columns: Columns = {
        **HEADS,
        "documents": lambda row: row.part,
        "n": lambda row: from_to(
            [one.num_examples for (size, _), one in row.slots().items() if str(size) == row.part]
        ),
        **{f"slot {slot + 1}": ("slot", str(slot)) for slot in slots},
        **({"shuffled": "shuffled"} if any(row.get("shuffled") for row in rows) else {}),
    }
    if rows:
        yield pivot("slot_results", rows, columns, heads=4)


def held_results(task: str, runs: Sequence[MeasuredRun]) -> Iterator[Table]:
    """Yield each method by the slot in which the gold document was held, nothing without such orders."""
    rows = [
        replace(row, part=BETWEEN.join(map(str, place)))
        for row in metric_rows(task, runs)
        for place in row.slots("held")
    ]
    columns: Columns = {
        **HEADS,
        "documents": lambda row: row.part.split(BETWEEN)[0],
        "slot": lambda row: str(int(row.part.split(BETWEEN)[1]) + 1),
        "n": lambda row: str(one.num_examples) if (one := row.get("held")) else "",
    }
    if rows:
        yield pivot("held_results", rows, columns, heads=5)


def scenario_rows(task: str, runs: Sequence[MeasuredRun]) -> list[Row]:
    """Return each method in each scenario, first over all orders unless one scenario has these orders."""
    rows = []
    for row in metric_rows(task, runs):
        scenarios = row.means("scenario", SCENARIOS)
        if row.mean.value not in [one.value for one in scenarios.values()]:
            rows.append(replace(row, part=OVER_ORDERS))
        rows += [replace(row, part=name) for name in scenarios]
    return rows


def old_weights(row: Row, group: str, *section: str) -> Estimate | None:
    """Return the estimate of a section or a total with the weights of v0.1.1."""
    return row.get(f"{group} v0.1.1", *section) or row.get(group, *section)


def scenario_results(task: str, runs: Sequence[MeasuredRun]) -> Iterator[Table]:
    """Yield the scenarios by section, or of all pairs, as the paper's Tables 1, 2, 4, 5 and 6."""
    rows = scenario_rows(task, runs)
    sections = list(dict.fromkeys(name for row in rows for name in row.subsets()))
    has_scenarios = any(row.part != OVER_ORDERS for row in rows)
    if not sections:
        if has_scenarios:
            columns = {**SCENARIO_HEADS, "all pairs": lambda row: _counted(row.get("scenario") or row.mean)}
            yield pivot("scenarios", rows, columns, heads=4, scenarios=tables.text("scenarios_note"))
        return
    columns = {**SCENARIO_HEADS}
    old = [name for name in sections if any(_weights_matter(row, name) for row in rows)]
    for names, suffix, get in ((sections, "", Row.get), (old, ", weights of v0.1.1", old_weights)):
        for name in names:
            columns[f"{name}{suffix}"] = lambda row, get=get, name=name: _counted(get(row, "section", name))
        if names:
            columns[f"total{suffix}"] = lambda row, get=get: estimated(get(row, "total"))
    scenarios = tables.text("scenarios_note") if has_scenarios else ""
    yield pivot("sections", rows, columns, heads=4, scenarios=scenarios)


def _counted(estimate: Estimate | None) -> str:
    """Return the text of an estimate with its number of examples."""
    cell = estimated(estimate)
    return cell if estimate is None or not estimate.is_parsed else f"{cell}, n = {estimate.num_examples}"


def _weights_matter(row: Row, section: str) -> bool:
    new, old = row.get("section", section), old_weights(row, "section", section)
    return (new and new.value) != (old and old.value)


def subset_results(task: str, runs: Sequence[MeasuredRun]) -> Iterator[Table]:
    """Yield for each section the accuracy by subset and scenario, as the paper's Tables 7 to 15."""
    rows = [row for row in scenario_rows(task, runs) if row.metric != "logprob"]

    def subset(row: Row, section: str, name: str) -> str:
        # A subset of weight 0 has an estimate, but is in no section.
        return _counted(row.get("subset", section, name) if name in row.subsets()[section] else None)

    for section in dict.fromkeys(name for row in rows for name in row.subsets()):
        of_section = [row for row in rows if section in row.subsets()]
        weights = {name: weight for row in of_section for name, weight in row.subsets()[section].items()}
        listed = ", ".join(f"{name} {weight:g}" for name, weight in weights.items())
        subsets = {name: partial(subset, section=section, name=name) for name in weights}
        columns = {**SCENARIO_HEADS, **subsets}
        yield pivot("subsets", of_section, columns, heads=4, section=section, weights=listed)


def bias_results(task: str, runs: Sequence[MeasuredRun]) -> Iterator[Table]:
    """Yield the position bias of each judge or choice as one line, nothing without several orders."""
    nouns = TASKS[task].nouns
    rows = [row for row in metric_rows(task, runs, ["generated", "chosen"]) if row.bias_json()]
    sizes = sorted({size for row in rows for size in row.grid.num_documents})
    columns: Columns = {
        **HEADS,
        **NUM_EXAMPLES,
        f"{nouns.score}, %": "mean",
        "names the first slot, %": "first slot",
        "more than chance": "first slot excess",
        "consistent, %": "consistent",
        f"{nouns.gold} first less last": "order gap",
        **{f"Cramér’s V, {size} {nouns.document}s": ("cramers v", str(size)) for size in sizes},
    }
    if rows:
        limits = f" {tables.text('detectable')}" if TASKS[task].is_judge else ""
        gold = nouns.gold.capitalize()
        yield pivot("bias_results", rows, columns, nouns=nouns, gold=gold, limits=limits)


def recall_results(task: str, runs: Sequence[MeasuredRun]) -> Iterator[Table]:
    """Yield the recall of each letter of a multiple choice, and their spread."""
    measured = metric_rows(task, runs, ["generated", "chosen"])
    rows = [replace(row, part=str(size)) for row in measured for size in row.letter_sizes]
    letters = sorted({letter for row in measured for of in row.letter_sizes.values() for letter in of})
    columns: Columns = {
        **HEADS,
        "options": lambda row: row.part,
        "n": lambda row: from_to([one.num_examples for one in row.means("recall", letters).values()]),
        **{letter: ("recall", letter) for letter in letters},
        "spread": "recall spread",
    }
    if rows:
        yield pivot("recall_results", rows, columns, heads=4)


def ranking_results(task: str, runs: Sequence[MeasuredRun]) -> Iterator[Table]:
    """Yield nDCG and Kendall's tau of the rankings, nothing for other tasks and without the relevance."""
    rows = [row for row in metric_rows(task, runs, ["generated", "chosen"]) if row.get("first relevant")]
    if rows:
        yield pivot("ranking_results", rows, {**HEADS, **NUM_EXAMPLES})


def rating_results(task: str, runs: Sequence[MeasuredRun]) -> Iterator[Table]:
    """Yield the ratings of the systems that each judge compares, nothing without their names."""
    judges = metric_rows(task, runs, ["generated", "chosen"])
    rows = [replace(row, part=model) for row in judges for model in row.rated_models]
    columns: Columns = {
        **HEADS,
        "system": lambda row: row.part,
        "n": lambda row: str(one.num_examples) if (one := row.get("rating")) else "",
        "rating, Elo points": "rating",
    }
    if rows:
        found = pivot("rating_results", rows, columns, heads=4)
        notes = [
            f"{row.run}, {METRIC_LABELS[row.metric]}, {method_label(row.method)}: {note}."
            for row in judges
            for note in row.rating_notes
        ]
        yield replace(found, note=" ".join([found.note, *notes]))


def position_bias(task: str, runs: Sequence[MeasuredRun]) -> Iterator[Table]:
    """Yield the effect of each order on a judge's verdicts, nothing for a task without letters."""
    columns: Columns = {
        **HEADS,
        "order": lambda row: row.part,
        "n": lambda row: str(one.num_examples) if (one := row.get("order")) else "",
    }
    if TASKS[task].has_letters:
        rows = [
            replace(row, part=name)
            for row in metric_rows(task, runs, ["generated", "chosen"])
            for name in row.means("order", row.grid.orders)
        ]
        yield pivot("position_bias", rows, columns, heads=4, nouns=TASKS[task].nouns)


def cost_results(task: str, runs: Sequence[MeasuredRun]) -> Table:
    """Return seconds and tokens of each method, and the ratios to vanilla."""
    columns: Columns = {
        **{name: HEADS[name] for name in ("run", "method")},
        "documents": lambda row: from_to(row.grid.num_documents),
        "n": lambda row: str(len(row.grid.examples)),
        "computed": lambda row: str(row.grid.num_computed(row.method)),
    }
    rows = metric_rows(task, runs, ["cost"])
    return pivot("cost_results", rows, columns, heads=2, task=tables.task_label(task))
