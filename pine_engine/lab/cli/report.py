"""Subcommands `report`, tables and figures of evaluations, and `reproduce-paper`, those of the paper."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from pine_engine.cli import output
from pine_engine.cli.options import Limit, ModelOptions, OutputDir
from pine_engine.cli.output import CommandResult
from pine_engine.errors import InputError, UnknownNameError
from pine_engine.lab.cli.evaluate import EvaluationOptions, evaluate
from pine_engine.lab.cli.limits import LimitOptions, with_limits
from pine_engine.lab.evaluation.report.comparisons import compared_runs
from pine_engine.lab.evaluation.report.molecule_tables import read_molecule_report
from pine_engine.lab.evaluation.report.parts import report_parts
from pine_engine.lab.evaluation.report.runs import read_runs
from pine_engine.lab.evaluation.report.verdict_audit import audit_json, audit_sentences
from pine_engine.lab.evaluation.shards import parse_shard
from pine_engine.lab.evaluation.task_estimates import nested
from pine_engine.lab.evaluation.verdicts import read_verdicts
from pine_engine.methods.table import METHODS

PAGE, MARKDOWN = "report.html", "report.md"


def report(
    output_dir: OutputDir,
    folders: Annotated[list[Path] | None, typer.Argument(metavar="DIR_OR_FILE...")] = None,
    molecules: list[Path] | None = None,
    limits: LimitOptions = LimitOptions(),
) -> CommandResult:
    """Compare runs in tables and figures like those of the paper, as HTML and Markdown.

    Runs of the same examples, such as with another model, are compared with the first one by a paired test.
    The Markdown shows the figures if the package kaleido is installed, and links to the HTML page otherwise.

    Args:
        output_dir: Folder for report.html, report.md and PNG files of the figures.
        folders: Folders of runs, created by `evaluate`; or CSV, JSON or JSONL files of verdicts
            that a judge has given, with the columns pair, order and verdict, and optionally judge and label.
        molecules: JSON file with the output of `molecules --json`. Can be repeated.
        limits: Limits of the results of each run.
    """
    parsed_limits = limits.parse()
    if not folders and not molecules:
        raise InputError("report has no input; give folders created by `evaluate`, or --molecules")
    if parsed_limits and not folders:
        raise InputError("--fail-above and --fail-below limit runs: got none, expected folders of `evaluate`")

    from viz.lab.report import TITLE, report_markdown, report_page, write_images

    runs = read_runs([path for path in folders or [] if not path.is_file()])
    verdicts = [read_verdicts(path) for path in folders or [] if path.is_file()]
    read_molecules = [read_molecule_report(file) for file in molecules or []]
    parts = report_parts(runs, molecules=read_molecules, verdicts=verdicts)
    heading = {"title": TITLE, "made": datetime.now(UTC).isoformat(timespec="seconds")}
    images: dict[str, str] = {}
    notes = []
    try:
        output_dir.mkdir(parents=True, exist_ok=True)
        (output_dir / PAGE).write_text(report_page(parts, **heading), encoding="utf-8")
        try:
            images = write_images(parts, output_dir)
        except RuntimeError:
            cause = "No PNG files written: kaleido could not run Chrome or Chromium"
            notes.append(f"{cause}. Run `plotly_get_chrome`, or use the figures of {PAGE}.")
        markdown = report_markdown(parts, **heading, page=PAGE, images=images)
        (output_dir / MARKDOWN).write_text(markdown, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{output_dir} cannot be written: {error.strerror}; give another folder") from error
    summaries = {run.label: nested(run.tasks) for run in runs}
    paths = [str(output_dir / name) for name in (PAGE, MARKDOWN, *images.values())]
    compared = compared_runs(runs)
    notes += [text for file in verdicts for text in audit_sentences(file)]
    notes += [one.sentence for one in compared]
    found = {"files": paths, "runs": summaries, "comparisons": [one.json() for one in compared]}
    found |= {"verdicts": {file.name: audit_json(file) for file in verdicts}} if verdicts else {}
    result = CommandResult(found, [{"written": path} for path in paths], notes)
    return with_limits(
        result,
        parsed_limits,
        {run.label: run.tasks for run in runs} | {file.name: [file.grid] for file in verdicts},
    )


REPORT = "report"  # name of the report's folder in the output folder

_METHODS = ",".join(row.name for row in METHODS.values() if row.role == "method")
_WRAPPERS = "permutation_full,pride,calibration_labels"
_JUDGES = ("rewardbench", "llmbar", "mt-bench", "humanevalpack")
_JUDGE_ORDERS = "judge,as-is,segments-swapped,labels-swapped"
_TEN_DOCUMENTS = "gold-at:0,gold-at:4,gold-at:9,shuffled:1"
_TWENTY_DOCUMENTS = "gold-at:0,gold-at:4,gold-at:9,gold-at:14,gold-at:19,shuffled:1"

STUDIES = {
    **{name: (f"{_METHODS},{_WRAPPERS}", _JUDGE_ORDERS) for name in _JUDGES},
    "lost-in-the-middle-10": (_METHODS, _TEN_DOCUMENTS),
    "lost-in-the-middle-20": (_METHODS, _TWENTY_DOCUMENTS),
    "key-value-75": (_METHODS, "gold-at:0,gold-at:24,gold-at:49,gold-at:74,shuffled:1"),
}
"""Methods and orders of the paper for each public dataset, as `evaluate` takes them."""

GENERATED_STUDIES = {
    "judge-2": STUDIES["llmbar"],
    "facts-3": (_METHODS, "gold-at:0,gold-at:1,gold-at:2,shuffled:1"),
    "facts-10": STUDIES["lost-in-the-middle-10"],
    "facts-20": STUDIES["lost-in-the-middle-20"],
}
"""The same for generated datasets, which are of the paper's form and need no network."""


def reproduce_paper(
    output_dir: OutputDir,
    sets: Annotated[list[str] | None, typer.Argument(metavar="SET...")] = None,
    data: Path = Path("data"),
    methods: str | None = None,
    limit: Limit = None,
    sample_seed: int | None = None,
    max_new_tokens: Limit = None,
    model: ModelOptions = ModelOptions(),
) -> CommandResult:
    """Evaluate the paper's datasets in its orders, with its wrappers, and write a report.

    The report leaves out datasets with missing records; then the exit status is 1. An interrupted command
    resumes.

    Args:
        output_dir: Folder for one run per dataset, and for their report.
        sets: Names of datasets, of those that `download-data` lists. No network is needed for judge-2,
            facts-3, facts-10 and facts-20, which are generated. Default: all datasets of the paper.
        data: Folder into which `download-data` wrote the datasets.
        methods: Methods and wrappers, as for evaluate; all as for evaluate. Default: those of the paper.
        limit: Maximum number of examples per dataset. Default: all.
        sample_seed: Seed of a random sample of examples. Default: the first examples.
        max_new_tokens: Maximum length of an answer, in tokens. Default: that of the task.
        model: Model to evaluate.
    """
    names = list(dict.fromkeys(sets or STUDIES))
    studies = STUDIES | GENERATED_STUDIES
    if unknown := [name for name in names if name not in studies]:
        raise UnknownNameError("set", unknown[0], studies)
    if missing := [name for name in names if not (data / f"{name}.jsonl").is_file()]:
        commands = [f"python -m pine_engine download-data {name} --output-dir {data}" for name in missing]
        files = ", ".join(f"{name}.jsonl" for name in missing)
        raise InputError(f"{data} has no {files}. Download first: {' && '.join(commands)}")
    finished: dict[str, Path] = {}
    for name in names:
        run = output_dir / name
        output.print_note(f"{name}, to {run}")
        methods_of_paper, orders = studies[name]
        options = EvaluationOptions(
            methods=methods or methods_of_paper,
            orders=orders,
            limit=limit,
            sample_seed=sample_seed,
            max_new_tokens=max_new_tokens,
            verdict="alphabetical",
        )
        result = evaluate(data / f"{name}.jsonl", run, options, model)
        output.print_result(result._replace(status=0), as_json=False)
        if result.status not in (0, output.FAILED):
            return CommandResult({}, [], status=result.status)
        if not result.status:
            finished[name] = run
    report_result = CommandResult({}, [])
    if finished and parse_shard().index == 0:
        report_result = report(output_dir / REPORT, list(finished.values()))
    if len(finished) == len(names):
        return report_result
    unfinished = ", ".join(name for name in names if name not in finished)
    notes = [*report_result.notes, f"not in the report, for the reasons above: {unfinished}"]
    return report_result._replace(notes=notes, status=output.FAILED)
