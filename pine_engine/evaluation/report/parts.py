"""Parts of a report: settings of the runs, key findings, tables and curves of each task."""

from collections.abc import Sequence

import numpy as np

from pine_engine.evaluation.bootstrap import NUM_RESAMPLES, SEED
from pine_engine.evaluation.intervals import LEVEL, MIN_EXAMPLES, share
from pine_engine.evaluation.report.curves import accuracy_bars, slot_curves
from pine_engine.evaluation.report.judge_tables import position_bias, scenario_results, subset_results
from pine_engine.evaluation.report.key_findings import key_findings
from pine_engine.evaluation.report.molecule_tables import MoleculeReport, molecule_part
from pine_engine.evaluation.report.paper_tables import overhead_beside, paper_part, same_model, same_subsets
from pine_engine.evaluation.report.published import PAPER, gains
from pine_engine.evaluation.report.runs import MeasuredRun, repeat_command
from pine_engine.evaluation.report.tables import (
    NONE,
    TOO_FEW,
    UNPARSED,
    Part,
    Table,
    estimated,
    from_to,
    note,
    task_label,
    without_lone_run,
)
from pine_engine.evaluation.report.task_tables import cost_results, main_results, order_results, slot_results
from pine_engine.prompts.tasks import TASKS, get_task


def report_parts(runs: Sequence[MeasuredRun], *, molecules: Sequence[MoleculeReport] = ()) -> list[Part]:
    """Return all parts of a report of at least one run, or one report of molecules."""
    found = {task.grid.task for run in runs for task in run.tasks}
    tasks = [name for name in TASKS if name in found]
    summary = Part(
        "Key findings", tuple(text for task in tasks for run in runs for text in key_findings(task, run))
    )
    return [
        *([measured_part(runs), summary, reading_part()] if runs else []),
        *(task_part(task, runs) for task in tasks),
        *([molecule_part(molecules)] if molecules else []),
        *([overhead_part(tasks, runs)] if runs else []),
        paper_part(runs),
    ]


def measured_part(runs: Sequence[MeasuredRun]) -> Part:
    """Return the settings of the runs, and the commands that repeat them."""
    facts = [_facts(run) for run in runs]
    table = Table(
        title="Runs",
        columns=("", *(run.label for run in runs)),
        rows=tuple((name, *(fact[name] for fact in facts)) for name in facts[0]),
        note=note("runs"),
    )
    return Part("What was measured", tables=(table,), commands=tuple(map(repeat_command, runs)))


def reading_part() -> Part:
    """Return how to interpret the numbers, above all the mean over orders."""
    reasoning = [one for one in gains() if one.part == "Reasoning"]
    below = [one for one in reasoning if one.is_below_both]
    examples = "; ".join(
        f"{one.model} {one.on_shuffle:+.1f} on the shuffle, {one.on_mean:+.2f} on the mean"
        for one in below[:2]
    )
    sentences = (
        note(
            "mean_over_orders",
            paper=PAPER,
            num_below=len(below),
            num_models=len(reasoning),
            examples=examples,
        ),
        note(
            "intervals",
            level=100 * LEVEL,
            none_of_7=estimated(share(np.zeros(7))),
            num_resamples=NUM_RESAMPLES,
            seed=SEED,
            min_examples=MIN_EXAMPLES,
            too_few=TOO_FEW,
        ),
        note("chance", min_examples=MIN_EXAMPLES, unparsed=UNPARSED),
    )
    return Part("How to read it", sentences)


def task_part(task: str, runs: Sequence[MeasuredRun]) -> Part:
    """Return the tables and curves of one task."""
    found = (
        main_results(task, runs),
        same_model(task, runs),
        *same_subsets(task, runs),
        scenario_results(task, runs),
        *subset_results(task, runs),
        order_results(task, runs),
        position_bias(task, runs),
        slot_results(task, runs),
    )
    return Part(
        heading=task_label(task),
        tables=tuple(without_lone_run(table) for table in found if table is not None),
        curves=(*accuracy_bars(task, runs), *slot_curves(task, runs)),
    )


def overhead_part(tasks: Sequence[str], runs: Sequence[MeasuredRun]) -> Part:
    """Return the costs of the methods by task, and the ratios of the paper."""
    beside = overhead_beside(runs)
    return Part(
        heading="Overhead",
        tables=(
            *(without_lone_run(cost_results(task, runs)) for task in tasks),
            *([] if beside is None else [beside]),
        ),
    )


def _facts(run: MeasuredRun) -> dict[str, str]:
    info, platform = run.info, run.info.platform
    longest = info.max_new_tokens or get_task(info.task).max_new_tokens
    return {
        "model": platform.model,
        "revision": platform.revision or NONE,
        "dtype": platform.dtype,
        "device": f"{platform.device}, {platform.hardware}, threads: {platform.threads}",
        "data": info.data,
        "SHA-256 of the data": info.data_sha256,
        "rows": "the first" if info.sample is None else f"drawn with seed {info.sample}",
        "task": info.task,
        "examples": ", ".join(str(len(one.grid.examples)) for one in run.tasks),
        "documents": ", ".join(from_to(one.grid.num_documents) for one in run.tasks),
        "left out": ", ".join(
            f"{one.grid.left_out} examples, {one.grid.failed} failed records" for one in run.tasks
        ),
        "methods": ", ".join(info.methods),
        "orders": ", ".join(info.order_names),
        "longest answer": f"{longest} tokens" if info.generate else NONE,
        "started": info.started,
        "versions": (
            f"PINE Explorer {platform.pine_explorer}, torch {platform.torch}, "
            f"transformers {platform.transformers}, Python {platform.python}"
        ),
    }
