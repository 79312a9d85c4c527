"""Published numbers of the paper as tables: beside local numbers of the same model, or else on their own."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from pine_engine.debias.table import method_label
from pine_engine.evaluation.intervals import Estimate
from pine_engine.evaluation.report.judge_tables import old_weights, scenario_rows
from pine_engine.evaluation.report.key_findings import SUBJECT
from pine_engine.evaluation.report.published import PAPER, SECTIONS, gains, published, published_model
from pine_engine.evaluation.report.runs import MeasuredRun
from pine_engine.evaluation.report.tables import (
    NONE,
    Part,
    Table,
    estimated,
    metric_rows,
    note,
    runs_of,
    task_label,
)
from pine_engine.evaluation.rewardbench import SUBSETS
from pine_engine.evaluation.slots import CHANGED, FIRST, OVER_ORDERS, SECOND
from pine_engine.evaluation.task_estimates import Row

THEIRS = "the paper"


def same_model(task: str, runs: Sequence[MeasuredRun]) -> Table | None:
    """Return local and published RewardBench scores of each model that both have, None for no model."""
    rows: list[tuple[str, ...]] = []
    for run, model in _shared(task, runs):
        for row in _generated(task, run):
            cells = [estimated(old_weights(row, "section", name)) for name in SECTIONS]
            total = estimated(old_weights(row, "total"))
            rows.append((f"ours, {run.label}", method_label(row.method), row.part, *cells, total, NONE))
        changed = ({"method": "vanilla", "setting": CHANGED, "where": "Table 4", **row}
                   for row in published("changed_verdicts"))  # fmt: skip
        for theirs in chain(published("judge_scores"), changed):
            if theirs["model"] == model:
                label = method_label(theirs["method"])
                rows.append(
                    (f"{THEIRS}, {model}", label, theirs["setting"], *_percents(theirs), theirs["where"])
                )
    if not rows:
        return None
    columns = ("whose", "method", "scenario", *SECTIONS, "total", "where in the paper")
    return _table("same_model", columns, list(dict.fromkeys(rows)), 3)


def same_subsets(task: str, runs: Sequence[MeasuredRun]) -> list[Table]:
    """Return local and published scores by subset, a table for each run of a model that both have."""
    return [_same_subsets(task, run, model) for run, model in _shared(task, runs)]


def _shared(task: str, runs: Sequence[MeasuredRun]) -> Iterator[tuple[MeasuredRun, str]]:
    """Yield the runs with sections of this task whose model is in the paper, with its name there."""
    for run, _ in runs_of(task, runs):
        model = published_model(run.info.platform.model)
        rows = [replace(row, part=OVER_ORDERS) for row in metric_rows(task, [run])]
        if model is not None and any(row.subsets() for row in rows):
            yield run, model


def _generated(task: str, run: MeasuredRun) -> list[Row]:
    return [row for row in scenario_rows(task, [run]) if row.metric == "generated"]


def _percents(row: Mapping[str, Any]) -> list[str]:
    return [f"{value:.1f}" for value in (*row["sections"], row["average"])]


def _same_subsets(task: str, run: MeasuredRun, model: str) -> Table:
    ours = [row for row in _generated(task, run) if row.part not in (FIRST, SECOND, CHANGED)]
    theirs = [row for row in published("subset_scores") if row["model"] == model]
    rows = []
    for subset, *printed in zip(SUBSETS, *(chain(*row["sections"]) for row in theirs), strict=True):
        found = [_subset(row, subset.name) for row in ours]
        if any(found):
            cells = [*map(estimated, found), *(f"{value:.1f}" for value in printed)]
            rows.append((subset.section, subset.name, *cells))
    return Table(
        title=f"Ours beside the paper's by subset: {run.label}",
        columns=(
            *("section", "subset"),
            *(f"ours, {method_label(row.method)}, {row.part}" for row in ours),
            *(f"{THEIRS}, {method_label(row['method'])}, {row['setting']}" for row in theirs),
        ),
        rows=tuple(rows),
        heads=2,
        note=f"Accuracy in %. {THEIRS.capitalize()}’s: {PAPER}, {theirs[0]['where']}.",
    )


def _subset(row: Row, name: str) -> Estimate | None:
    sections = (section for section, names in row.subsets().items() if name in names)
    section = next(sections, None)
    return None if section is None else row.get("subset", section, name)


def shuffle_and_mean() -> Table:
    """Return the paper's gain on a single shuffle, and on the mean of the two orders it is drawn from."""
    columns = (
        *("model", "RewardBench", "better answer is A", "is B", "mean of both", "one shuffle", "PINE"),
        *("PINE less shuffle", "PINE less mean", "shuffle below both"),
    )
    rows = [
        (
            *(one.model, one.part, f"{one.first:.1f}", f"{one.second:.1f}", f"{one.mean:.2f}"),
            *(f"{one.shuffled:.1f}", f"{one.pine:.1f}", f"{one.on_shuffle:+.1f}", f"{one.on_mean:+.2f}"),
            "yes" if one.is_below_both else "no",
        )
        for one in gains()
    ]
    return _table("shuffle_and_mean", columns, rows, 2)


def paper_part(runs: Sequence[MeasuredRun]) -> Part:
    """Return the numbers of the paper for models without a run, and those that need none."""
    ours = {published_model(run.info.platform.model) for run in runs}
    scores = [
        (row["model"], method_label(row["method"]), row["setting"], *_percents(row), row["where"])
        for row in published("judge_scores")
        if row["model"] not in ours
    ]
    changed = [(row["model"], *_percents(row)) for row in published("changed_verdicts")]
    molecules = [
        (method_label(method), *(f"{error:g}" for error in errors))
        for method, *errors in (row.values() for row in published("molecule_errors"))
    ]
    remarks = [
        (task_label(row["task"]), row["model"], row["text"], row["where"]) for row in published("remarks")
    ]
    for row in published("overheads"):
        text = f"PINE takes about {row['ratio']:g}x vanilla's time with {row['documents']} documents"
        remarks.append((task_label(row["task"]), NONE, text, "section 4.5"))
    return Part(
        heading="The paper's own numbers (other models)",
        sentences=(note("paper"),),
        tables=(
            shuffle_and_mean(),
            _table("paper_scores", ("model", "method", "order", *SECTIONS, "average", "where"), scores, 3),
            _table("paper_changed", ("model", *SECTIONS, "average"), changed),
            _table("paper_molecules", ("method", "alpha", "HOMO", "LUMO", "gap", "mu", "Cv"), molecules),
            _table("paper_remarks", ("task", "model", "what it says", "where"), remarks, 2),
        ),
    )


def _table(name: str, columns: Sequence[str], rows: Sequence[tuple[str, ...]], heads: int = 1) -> Table:
    """Return a table of published numbers whose title and note are in texts.toml."""
    return Table(note(f"{name}_title"), tuple(columns), tuple(rows), heads, note(name, paper=PAPER))


def overhead_beside(runs: Sequence[MeasuredRun]) -> Table | None:
    """Return PINE's time over vanilla's for the tasks of the paper, None for no run of them."""
    rows: list[tuple[str, ...]] = []
    for theirs in published("overheads"):
        label = task_label(theirs["task"])
        ours = [
            (f"ours, {run.label}", label, ", ".join(map(str, found.grid.num_documents)), estimated(ratio),
             estimated(found.get(SUBJECT, "cost", "prefill_ratio")))
            for run, found in runs_of(theirs["task"], runs)
            if (ratio := found.get(SUBJECT, "cost", "ratio"))
        ]  # fmt: skip
        if ours:
            about = f"about {theirs['ratio']:g}x"
            rows += [*ours, (f"{THEIRS}, its models", label, str(theirs["documents"]), about, NONE)]
    if not rows:
        return None
    return _table("paper_overhead", ("whose", "task", "documents", "all", "prefill"), rows, 2)
