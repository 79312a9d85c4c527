"""The verb `report`: runs side by side, as one HTML page and as Markdown with curves."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pine_engine.console import terminal
from pine_engine.console.options import AsJson
from pine_engine.errors import InputError

if TYPE_CHECKING:
    from pine_engine.evaluation.report.tables import Part
    from viz.export.report import Report

TITLE = "Does the order of the documents change the answer? What was measured"

PAGE, MARKDOWN = "report.html", "report.md"


def make_report(
    out: Annotated[Path, typer.Option(help="Folder for report.html, report.md and the curves.")],
    folders: Annotated[
        list[Path] | None, typer.Argument(help="Folders of runs, made by `evaluate`.", metavar="DIR...")
    ] = None,
    molecules: Annotated[
        list[Path] | None, typer.Option(help="JSON that `molecules --json` has printed; may be repeated.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Put runs side by side: tables and curves in the form of the paper's, as HTML and Markdown."""
    if not folders and not molecules:
        raise InputError("there is nothing to report; give folders that `evaluate` has made, or --molecules")

    from pine_engine.evaluation.report.molecule_tables import read_molecule_report
    from pine_engine.evaluation.report.parts import report_parts
    from pine_engine.evaluation.report.runs import read_runs

    runs = read_runs(folders or [])
    written = [read_molecule_report(file) for file in molecules or []]
    drawn = draw(report_parts(runs, molecules=written), made=datetime.now(UTC).isoformat(timespec="seconds"))
    files = report_files(drawn)
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (out / name).write_text(content, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{out} cannot be written: {error.strerror}; give another folder") from error
    summaries = {run.label: run.summary.model_dump(mode="json") for run in runs}
    paths = [str(out / name) for name in files]
    terminal.print_report({"files": paths, "runs": summaries}, as_json, [{"written": path} for path in paths])


def draw(parts: Sequence["Part"], *, made: str) -> "Report":
    """The parts as viz takes them."""
    from viz.export.report import Report, ReportCurve, ReportPart, ReportTable
    from viz.figures.chart import Across, Area, Series

    return Report(
        title=TITLE,
        made=made,
        parts=tuple(
            ReportPart(
                heading=part.heading,
                sentences=part.sentences,
                tables=tuple(
                    ReportTable(table.title, table.columns, table.rows, table.heads, table.note)
                    for table in part.tables
                ),
                curves=tuple(
                    ReportCurve(
                        name=curve.name,
                        title=curve.title,
                        x_title=curve.x_title,
                        y_title=curve.y_title,
                        places=curve.places,
                        lines=tuple(
                            Series(line.label, line.values, line.mark, line.intervals) for line in curve.lines
                        ),
                        levels=tuple(
                            Across(level.label, level.value, level.mark, level.interval)
                            for level in curve.levels
                        ),
                        areas=tuple(Area(area.label, area.start, area.end) for area in curve.areas),
                        has_bars=curve.has_bars,
                        note=curve.note,
                    )
                    for curve in part.curves
                ),
                commands=part.commands,
            )
            for part in parts
        ),
    )


def report_files(drawn: "Report") -> dict[str, str]:
    """The content of each file of a report, by its name."""
    import viz.export.report as drawing
    from viz.drawing.styles import figure_styles

    styles = figure_styles()
    return {
        PAGE: drawing.report_page(drawn, styles=styles),
        MARKDOWN: drawing.report_markdown(drawn),
        **drawing.curve_files(drawn, styles=styles),
    }
