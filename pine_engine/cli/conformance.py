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

    from pine_engine.invariance.conformance import check_case

    rows: list[dict[str, Any]] = []
    reports: list[CaseReport] = []
    problems: list[str] = []
    with terminal.progress(len(cases)) as advance:
        for case in cases:
            try:
                report = check_case(case)
            except InputError as error:
                problems.append(str(error))
                rows.append({"case": case.name, "problem": str(error), "conforms": False})
            else:
                reports.append(report)
                rows.append({**dataclasses.asdict(report), "conforms": report.conforms})
            advance(case.name)
    conforms = all(report.conforms for report in reports)
    if as_json or reports:
        summary = {"cases": rows, "conforms": conforms and not problems}
        terminal.print_report(summary, as_json, list(map(_row, reports)))
    for problem in problems:
        print(f"pine_engine: {problem}", file=sys.stderr)
    if not conforms:
        raise typer.Exit(FAILED)
    if problems:
        raise typer.Exit(BAD_INPUT)


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
