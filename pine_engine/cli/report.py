"""Subcommand `report`: comparison of evaluations as an HTML page and as Markdown."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from pine_engine.cli.output import CommandResult
from pine_engine.errors import InputError
from pine_engine.evaluation.report.molecule_tables import read_molecule_report
from pine_engine.evaluation.report.parts import report_parts
from pine_engine.evaluation.report.runs import read_runs
from pine_engine.evaluation.task_estimates import nested

PAGE, MARKDOWN = "report.html", "report.md"


def report(
    output_dir: Annotated[Path, typer.Option()],
    folders: Annotated[list[Path] | None, typer.Argument(metavar="DIR...")] = None,
    molecules: list[Path] | None = None,
) -> CommandResult:
    """Compare runs in tables and figures like those of the paper, as HTML and Markdown.

    The Markdown shows the figures if the package kaleido is installed, and links to the HTML page otherwise.

    Args:
        output_dir: Folder for report.html, report.md and PNG files of the figures.
        folders: Folders of runs, created by `evaluate`.
        molecules: JSON file with the output of `molecules --json`. Can be repeated.
    """
    if not folders and not molecules:
        raise InputError("report has no input; give folders created by `evaluate`, or --molecules")

    from viz.export.report import TITLE, report_markdown, report_page, write_images

    runs = read_runs(folders or [])
    parts = report_parts(runs, molecules=[read_molecule_report(file) for file in molecules or []])
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
    return CommandResult({"files": paths, "runs": summaries}, [{"written": path} for path in paths], notes)
