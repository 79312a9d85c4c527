"""What was measured as two files: the records, which `report` and other programs read, and a report to show.

Imports torch, like measuring.py.
"""

from dataclasses import dataclass
from pathlib import Path

from pine_engine.cli.report import TITLE
from pine_engine.evaluation.report.parts import report_parts
from viz.export.report import report_page
from viz.page.common.private_folder import remove_folder
from viz.page.measure.measuring import MeasuredRecords

RECORDS, REPORT = "records.jsonl", "report.html"


@dataclass(frozen=True)
class MeasuredFiles:
    """Where the files of one measurement lie."""

    folder: Path
    """In which there is nothing else."""

    has_report: bool

    @property
    def records(self) -> Path:
        """JSONL, one record a line."""
        return self.folder / RECORDS

    @property
    def report(self) -> Path:
        """HTML, one file that needs nothing else."""
        return self.folder / REPORT


def write_measured(measured: MeasuredRecords, folder: Path) -> MeasuredFiles:
    """Writes the files into a folder that is theirs alone.

    There is no report before one row is done with every method in every order.
    """
    lines = (record.model_dump_json() + "\n" for record in measured.records)
    (folder / RECORDS).write_text("".join(lines), encoding="utf-8")
    run = measured.run
    if run is not None:
        page = report_page(report_parts([run]), title=TITLE, made=measured.info.started)
        (folder / REPORT).write_text(page, encoding="utf-8")
    return MeasuredFiles(folder, run is not None)


def remove_measured(files: MeasuredFiles | None) -> None:
    """Removes the files."""
    remove_folder(files.folder if files else None)
