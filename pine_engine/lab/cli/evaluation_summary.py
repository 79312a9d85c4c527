"""Summary of a run in the terminal: its report, main results, and notes on errors and on what is missing."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

from pine_engine.cli import output
from pine_engine.cli.output import CommandResult
from pine_engine.endpoint import NOT_GREEDY
from pine_engine.errors import InputError
from pine_engine.lab.cli.limits import with_limits
from pine_engine.lab.debias.measured import method_label
from pine_engine.lab.evaluation.cautions import cautions, scoring_sentence
from pine_engine.lab.evaluation.estimates import BASELINE, estimate_tasks
from pine_engine.lab.evaluation.grid import Grid
from pine_engine.lab.evaluation.record import Record, count_repeats, describe_errors
from pine_engine.lab.evaluation.report.key_findings import hard_to_detect, letter_recalls
from pine_engine.lab.evaluation.report.limits import ResultLimit
from pine_engine.lab.evaluation.report.recommendation import recommendations
from pine_engine.lab.evaluation.report.runs import MeasuredRun
from pine_engine.lab.evaluation.report.tables import estimated, metric_rows
from pine_engine.lab.evaluation.report.task_tables import main_results
from pine_engine.lab.evaluation.settings import RunInfo
from pine_engine.lab.evaluation.task_estimates import answer_estimate, method_rows, nested
from pine_engine.methods.table import METHODS

CHANGES = {
    "answer changes, %": "changed",
    "changes per pair of orders, %": "flip rate",
    "changes in the same order again, %": "again changed",
}


def summarize_records(
    folder: Path,
    info: RunInfo,
    records: Sequence[Record],
    missing: int,
    seconds: float,
    limits: Sequence[ResultLimit] = (),
) -> CommandResult:
    """Return report, table and notes of a run. Missing records are a failure, and so are no numbers.

    The seconds are those of this command.
    """
    reasons = []
    if missing:
        reasons.append(f"{missing} records are missing: a process died; run the same command again to resume")
    tasks: Sequence[Grid] = ()
    try:
        tasks = estimate_tasks(records)
    except InputError as error:
        reasons.append(str(error))
    report = {
        "folder": str(folder),
        "model": info.platform.model,
        "dtype": info.platform.dtype,
        "run": info.model_dump(mode="json"),
        "records": len(records),
        "computed": sum(record.was_computed for record in records),
        "errors": sum(record.error is not None for record in records),
        "missing": missing,
        "repeated": dataclasses.asdict(count_repeats(records)),
        "wall_s": seconds,
        "seconds": sum(record.seconds for record in records),
        "summary": nested(tasks) if tasks else None,
    }
    run = MeasuredRun(folder.name, info, tuple(tasks))
    rows = [row for task in tasks for row in _rows(dataclasses.replace(run, tasks=(task,)))]
    notes = [*_notes_on_records(info, records)]
    if not rows and not reasons:
        notes.append(f"{folder} has records, but no metrics; add answers, or further --orders")
    notes += _notes_on_tasks(tasks)
    actions = [*recommendations(run)]
    notes += actions
    report["recommendations"] = actions
    result = CommandResult(report, rows, notes + reasons, output.FAILED if reasons else 0)
    return with_limits(result, limits, {"": tasks})


def _notes_on_records(info: RunInfo, records: Sequence[Record]) -> Iterator[str]:
    """Yield notes on records with an error, without an answer, or of a server."""
    if errors := describe_errors(records):
        yield f"{errors}; --retry-errors measures them again"
    if unfinished := sum(not record.is_finished for record in records):
        yield output.unfinished_note(unfinished, len(records))
    yield from count_repeats(records).notes()
    if not info.is_greedy:
        yield NOT_GREEDY
    unscored = [
        record
        for record in records
        if record.method in METHODS and record.answers and not record.error
        if record.answer_logprob is None and record.choice_logprobs is None
    ]
    if info.logprobs and unscored:
        reason = "a choice is none of the likely first tokens of the server"
        yield f"{len(unscored)} of {len(records)} records have no log-probabilities: {reason}"


def _notes_on_tasks(tasks: Sequence[Grid]) -> Iterator[str]:
    """Yield notes on what the numbers of each task can show."""
    for task in tasks:
        rows = method_rows(task, ["generated", "chosen"])
        for row in rows:
            yield from hard_to_detect(row) if row.method == BASELINE else ()
        for row in rows:
            yield from letter_recalls(row)
        yield from task.quoted_verdict_notes()
        yield from cautions(task)
        yield scoring_sentence(task)


def _rows(run: MeasuredRun) -> Iterator[dict[str, str]]:
    """Yield the main results of each method by metric, as in a report, and the time per record."""
    (grid,) = run.tasks
    table = main_results(grid.task, [run])
    for row, texts in zip(metric_rows(grid.task, [run]), table.rows, strict=True):
        cells = dict(zip(table.columns, texts, strict=True))
        time_per_record = estimated(grid.get(row.method, "cost", "seconds"))
        yield {"method": cells.pop("method"), **cells, "time": time_per_record}
    for method in grid.methods:
        if answer_estimate(grid, method, "mean") or not answer_estimate(grid, method, "changed"):
            continue
        shares = {name: answer_estimate(grid, method, group) for name, group in CHANGES.items()}
        cells = {name: estimated(one) for name, one in shares.items() if one}
        yield {"method": method_label(method)} | cells  # there are no accepted answers
