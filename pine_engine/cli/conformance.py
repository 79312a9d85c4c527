"""The subcommand `conformance`: compare the engine with recorded outputs of the authors' code."""

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pine_engine.console import terminal
from pine_engine.console.exit_status import BAD_INPUT, FAILED
from pine_engine.console.options import AsJson
from pine_engine.errors import InputError

if TYPE_CHECKING:
    from pine_engine.invariance.conformance import CaseReport


def conformance(
    folder: Annotated[Path, typer.Argument(help="Folder that contains recorded cases.")],
    as_json: AsJson = False,
) -> None:
    """Compare with recorded outputs of the authors' code; exit 1 beyond tolerance, 2 for an invalid case."""
    cases = find_cases(folder)

    from pine_engine.invariance.conformance import CaseReport, FailedCase, try_case

    reports: list[CaseReport | FailedCase] = []
    with terminal.progress(len(cases)) as advance:
        for case in cases:
            reports.append(try_case(case))
            advance(case.name)
    rows = [{**dataclasses.asdict(report), "conforms": report.conforms} for report in reports]
    conforms = all(report.conforms for report in reports)
    checked = [report for report in reports if isinstance(report, CaseReport)]
    if as_json or checked:
        terminal.print_report({"cases": rows, "conforms": conforms}, as_json, list(map(_row, checked)))
    for report in reports:
        if isinstance(report, FailedCase):
            print(f"pine_engine: {report.problem}", file=sys.stderr)
    if not conforms:
        raise typer.Exit(BAD_INPUT if all(report.conforms for report in checked) else FAILED)


def find_cases(folder: Path) -> list[Path]:
    """Return the case folders below a folder, or the folder itself."""
    cases = sorted(path.parent for path in folder.glob("**/case.json"))
    if not cases:
        raise InputError(f"{folder} has no conformance case: expected folders with a case.json")
    return cases


def _row(report: "CaseReport") -> dict[str, Any]:
    return {
        "case": report.case,
        "runs": report.runs,
        "max |Δ logit|, PINE": report.max_logits_diff,
        "max |Δ logit|, vanilla": report.max_vanilla_logits_diff,
        "max |Δ importance|": report.max_importance_diff,
        "same positions": report.shifts_equal,
        "same tokens": report.decoded_ids_equal,
        "conforms": report.conforms,
    }
