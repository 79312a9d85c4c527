"""Files of an evaluation: records for `report` and other programs, and a report. Imports torch."""

from dataclasses import dataclass
from pathlib import Path

from pine_engine.cli.report import TITLE
from pine_engine.evaluation.report.parts import report_parts
from viz.export.report import report_page
from viz.page.common.disk import remove_folder
from viz.page.measure.measuring import MeasuredRecords

RECORDS, REPORT = "records.jsonl", "report.html"


@dataclass(frozen=True)
class MeasuredFiles:
    """Paths of the files of one evaluation."""

    folder: Path
    """Folder of these files only."""

    has_report: bool

    @property
    def records(self) -> Path:
        """Return the path of the JSONL records."""
        return self.folder / RECORDS

    @property
    def report(self) -> Path:
        """Return the path of the HTML report, a single file."""
        return self.folder / REPORT


def write_measured(measured: MeasuredRecords, folder: Path) -> MeasuredFiles:
    """Write the files into the folder; the report needs one example with every method and order."""
    lines = (record.model_dump_json() + "\n" for record in measured.records)
    (folder / RECORDS).write_text("".join(lines), encoding="utf-8")
    run = measured.run
    if run is not None:
        page = report_page(report_parts([run]), title=TITLE, made=measured.info.started)
        (folder / REPORT).write_text(page, encoding="utf-8")
    return MeasuredFiles(folder, run is not None)


def remove_measured(files: MeasuredFiles | None) -> None:
    """Remove the files."""
    remove_folder(files.folder if files else None)
