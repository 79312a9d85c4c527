"""Records of an evaluation so far, with their tables, curves and files."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from pine_engine.endpoint import NOT_GREEDY
from pine_engine.errors import InputError
from pine_engine.lab.evaluation.estimates import estimate_tasks
from pine_engine.lab.evaluation.record import Key, Record, describe_errors
from pine_engine.lab.evaluation.report.changes import changes_bars, changes_table
from pine_engine.lab.evaluation.report.curves import slot_curves
from pine_engine.lab.evaluation.report.key_findings import key_findings
from pine_engine.lab.evaluation.report.parts import reading_part, report_parts, task_part
from pine_engine.lab.evaluation.report.runs import MeasuredRun, run_labels
from pine_engine.lab.evaluation.report.tables import TOO_FEW, Curve, Table
from pine_engine.lab.evaluation.settings import RunInfo
from pine_engine.scheduling.work import Work
from viz.lab.report import TITLE, measured_html, report_page

NO_INTERVAL = f" ({TOO_FEW})"
RECORDS, REPORT = "records.jsonl", "report.html"


@dataclass(frozen=True)
class MeasureView:
    """Records of an evaluation so far."""

    sentence: str = field(compare=False)
    info: RunInfo
    planned: tuple[Key, ...]
    records: tuple[Record, ...] = ()

    @property
    def done(self) -> Work:
        """Return the work so far, with the times that predict those of later work."""
        return self.info.model.predictive(work_of(self.records))

    @property
    def progress(self) -> tuple[int, int]:
        """Return the number of records, and of all planned ones."""
        return len(self.records), len(self.planned)

    @property
    def is_complete(self) -> bool:
        """Return True if all planned records are there."""
        return len(self.records) == len(self.planned)

    @cached_property
    def run(self) -> MeasuredRun | None:
        """Return the complete examples (every method and order) as a run; None if there are none."""
        missing = {key[0] for key in set(self.planned) - {record.key for record in self.records}}
        try:
            tasks = estimate_tasks([record for record in self.records if record.example not in missing])
        except InputError:
            return None
        (label,) = run_labels([self.info])
        return MeasuredRun(label, self.info, tasks)


def work_of(records: Sequence[Record]) -> Work:
    """Return the work of these records; reused results count as none, shared prefills are split."""
    computed = [(record, _own_part(record)) for record in records if record.was_computed]
    return Work(
        prompts=len(computed),
        prompt_tokens=round(sum(part * record.prompt_tokens for record, part in computed)),
        new_tokens=round(sum(part * (record.answer_tokens or 0) for record, part in computed)),
        orders=len({record.order_name for record in records}),
        prefill_s=sum(part * record.prefill_s for record, part in computed),
        decode_s=sum(part * record.decode_s for record, part in computed),
    )


def _own_part(record: Record) -> float:
    """Return the fraction of the standalone time of a record that was attributed to it."""
    alone = record.prefill_s + record.decode_s
    return min(1.0, record.seconds / alone) if alone else 1.0


def write_files(view: MeasureView, folder: Path) -> tuple[Path, Path | None]:
    """Write the records and the report, None without a complete example, into a folder of their own."""
    records, report, run = folder / RECORDS, folder / REPORT, view.run
    records.write_text("".join(map(Record.json_line, view.records)), encoding="utf-8")
    if run is None:
        return records, None
    report.write_text(report_page(report_parts([run]), title=TITLE, made=view.info.started), encoding="utf-8")
    return records, report


def results_html(view: MeasureView, run: MeasuredRun | None) -> str:
    """Render the changed answers, and the findings and tables of a report on the complete examples."""
    task = view.info.task
    tables = [changes_table(view.records), *(task_part(task, [run]).tables if run else ())]
    notes = [f"{errors}."] if (errors := describe_errors(view.records)) else []
    if not view.info.is_greedy:
        notes.append(f"{NOT_GREEDY.capitalize()}.")
    findings = key_findings(task, run) if run else []
    texts = [*findings, *(cell for table in tables for row in table.rows for cell in row)]
    if any(NO_INTERVAL in text for text in texts):
        notes.append("No interval: too few examples.")
    return measured_html(
        *view.progress,
        findings=[_with_lead(sentence.replace(NO_INTERVAL, "")) for sentence in findings],
        tables=[_without_missing_intervals(table) for table in tables if table.rows],
        note=" ".join(notes),
        reading=reading_part().sentences,
    )


def _with_lead(finding: str) -> str:
    """Return a finding whose run and metric are a sentence: each sentence is translated alone."""
    lead, colon, rest = finding.partition(": ")
    return f"{lead}. {rest}" if colon and ", n = " in lead else finding


def _without_missing_intervals(table: Table) -> Table:
    rows = tuple(tuple(cell.replace(NO_INTERVAL, "") for cell in row) for row in table.rows)
    return replace(table, rows=rows)


def curves_of(view: MeasureView, run: MeasuredRun | None) -> list[Curve]:
    """Return the curves over the slots of the gold document by the last metric, without areas.

    Returns bars of the answers that change if there are no such curves.
    """
    found = [curve for grid in run.tasks for curve in slot_curves(grid.task, [run])] if run else []
    lines = [curve for curve in found if not curve.areas]
    return [curve for curve in lines if curve.y_title == lines[-1].y_title] or changes_bars(view.records)
