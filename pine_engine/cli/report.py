"""Subcommand `report`: evaluations side by side, as an HTML page and as Markdown."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from pine_engine.console import terminal
from pine_engine.console.options import AsJson
from pine_engine.errors import InputError

TITLE = "Does the order of the documents change the answer? What was measured"

PAGE, MARKDOWN = "report.html", "report.md"

NO_IMAGES = (
    "No PNG files written: kaleido could not run Chrome or Chromium. Run `plotly_get_chrome`, or use the "
    f"figures of {PAGE}."
)
"""Message if kaleido is installed and fails."""


def make_report(
    output_dir: Annotated[
        Path, typer.Option(help="Folder for report.html, report.md and PNG files of the figures.")
    ],
    folders: Annotated[
        list[Path] | None, typer.Argument(help="Folders of runs, made by `evaluate`.", metavar="DIR...")
    ] = None,
    molecules: Annotated[
        list[Path] | None, typer.Option(help="JSON that `molecules --json` has printed; may be repeated.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Put runs side by side: tables and figures in the form of the paper's, as HTML and Markdown.

    The Markdown shows the figures if the package kaleido is installed, and links to the HTML page otherwise.
    """
    if not folders and not molecules:
        raise InputError("there is nothing to report; give folders that `evaluate` has made, or --molecules")

    from pine_engine.evaluation.report.molecule_tables import read_molecule_report
    from pine_engine.evaluation.report.parts import report_parts
    from pine_engine.evaluation.report.runs import read_runs
    from pine_engine.evaluation.task_estimates import nested
    from viz.export.report import report_markdown, report_page, write_images

    runs = read_runs(folders or [])
    parts = report_parts(runs, molecules=[read_molecule_report(file) for file in molecules or []])
    heading = {"title": TITLE, "made": datetime.now(UTC).isoformat(timespec="seconds")}
    images: dict[str, str] = {}
    try:
        output_dir.mkdir(parents=True, exist_ok=True)
        (output_dir / PAGE).write_text(report_page(parts, **heading), encoding="utf-8")
        try:
            images = write_images(parts, output_dir)
        except RuntimeError:
            terminal.say(NO_IMAGES)
        markdown = report_markdown(parts, **heading, page=PAGE, images=images)
        (output_dir / MARKDOWN).write_text(markdown, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{output_dir} cannot be written: {error.strerror}; give another folder") from error
    summaries = {run.label: nested(run.tasks) for run in runs}
    paths = [str(output_dir / name) for name in (PAGE, MARKDOWN, *images.values())]
    terminal.print_report({"files": paths, "runs": summaries}, as_json, [{"written": path} for path in paths])
