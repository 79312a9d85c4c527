"""Parts of a report: findings with a figure, tables and curves of tasks, settings, the paper's numbers."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pine_engine.lab.evaluation.bootstrap import NUM_RESAMPLES, SEED
from pine_engine.lab.evaluation.intervals import LEVEL, MIN_EXAMPLES, share
from pine_engine.lab.evaluation.report import paper_tables, task_tables
from pine_engine.lab.evaluation.report.comparisons import compared_runs, comparison_part
from pine_engine.lab.evaluation.report.curves import accuracy_bars, slot_curves
from pine_engine.lab.evaluation.report.key_findings import key_findings
from pine_engine.lab.evaluation.report.molecule_tables import (
    TASK as MOLECULES,
    MoleculeReport,
    molecule_findings,
    molecule_part,
)
from pine_engine.lab.evaluation.report.recommendation import recommendations
from pine_engine.lab.evaluation.report.runs import MeasuredRun, repeat_command, settings_of
from pine_engine.lab.evaluation.report.tables import (
    TOO_FEW,
    UNPARSED,
    Part,
    estimated,
    table,
    task_label,
    text,
)
from pine_engine.lab.evaluation.report.verdict_audit import audit_part
from pine_engine.lab.evaluation.verdicts import VerdictFile
from pine_engine.prompts.tasks import TASKS


def report_parts(
    runs: Sequence[MeasuredRun],
    *,
    molecules: Sequence[MoleculeReport] = (),
    verdicts: Sequence[VerdictFile] = (),
) -> list[Part]:
    """Return all parts of a report of at least one run, one report of molecules, or one file of verdicts."""
    found = {task.task for run in runs for task in run.tasks}
    tasks = [name for name in TASKS if name in found]
    findings = [sentence for task in tasks for run in runs for sentence in key_findings(task, run)]
    findings += [sentence for report in molecules for sentence in molecule_findings(report)]
    findings += [f"{run.label}. {action}" for run in runs for action in recommendations(run)]
    parts = [task_part(task, runs) for task in tasks]
    figure = next((curve for part in parts for curve in part.curves), None)
    parts = [replace(part, curves=tuple(one for one in part.curves if one is not figure)) for part in parts]
    costs = (*(task_tables.cost_results(task, runs) for task in tasks), *paper_tables.overhead_beside(runs))
    return [
        *(
            [Part("Key findings", tuple(findings), curves=(figure,) if figure else ())]
            if tasks or molecules
            else []
        ),
        *map(audit_part, verdicts),
        *([comparison_part(compared)] if (compared := compared_runs(runs)) else []),
        *parts,
        *([molecule_part(molecules)] if molecules else []),
        *([Part("Overhead", tables=costs), reading_part(), settings_part(runs)] if runs else []),
        *paper_tables.paper_part([*tasks, *([MOLECULES] if molecules else [])], runs),
    ]


def settings_part(runs: Sequence[MeasuredRun]) -> Part:
    """Return the settings of the runs, and the commands that repeat them."""
    settings = {run.label: settings_of(run) for run in runs}
    rows = [
        {"": name, **{label: of_run[name] for label, of_run in settings.items()}}
        for name in settings[runs[0].label]
    ]
    return Part("What was measured", tables=(table("runs", rows),), commands=tuple(map(repeat_command, runs)))


def reading_part() -> Part:
    """Return how to interpret the numbers, above all the mean over orders."""
    values = {
        "level": 100 * LEVEL,
        "none_of_7": estimated(share(np.zeros(7))),
        "num_resamples": NUM_RESAMPLES,
        "seed": SEED,
        "min_examples": MIN_EXAMPLES,
        "too_few": TOO_FEW,
        "unparsed": UNPARSED,
    }
    names = ("mean_over_orders", "intervals", "chance")
    return Part("How to read it", tuple(text(name, **values) for name in names))


def task_part(task: str, runs: Sequence[MeasuredRun]) -> Part:
    """Return the tables and curves of one task."""
    return Part(
        heading=task_label(task),
        tables=(
            task_tables.main_results(task, runs),
            *paper_tables.same_model(task, runs),
            *task_tables.scenario_results(task, runs),
            *task_tables.subset_results(task, runs),
            *task_tables.order_results(task, runs),
            *task_tables.bias_results(task, runs),
            *task_tables.recall_results(task, runs),
            *task_tables.ranking_results(task, runs),
            *task_tables.rating_results(task, runs),
            *task_tables.position_bias(task, runs),
            *task_tables.slot_results(task, runs),
            *task_tables.held_results(task, runs),
        ),
        curves=(*accuracy_bars(task, runs), *slot_curves(task, runs)),
    )
