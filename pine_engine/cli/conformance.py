"""Subcommand `conformance`: comparison with recorded outputs of the authors' code."""

import dataclasses
import sys
from pathlib import Path
from typing import Any

import typer

from pine_engine.cli import output
from pine_engine.cli.options import AsJson
from pine_engine.errors import InputError


def conformance(folder: Path, as_json: AsJson = False) -> None:
    """Compare with recorded outputs of the authors' code; exit 1 beyond tolerance, 2 for an invalid case.

    Args:
        folder: Folder that contains recorded cases.
        as_json: Print JSON.
    """
    cases = sorted(path.parent for path in folder.glob("**/case.json"))
    if not cases:
        raise InputError(f"{folder} has no conformance case: expected folders with a case.json")

    from pine_engine.invariance.conformance import CaseReport, check_case

    entries: list[dict[str, Any]] = []
    reports: list[CaseReport] = []
    with output.progress(len(cases)) as advance:
        for case in cases:
            try:
                report = check_case(case)
            except InputError as error:
                entries.append({"case": case.name, "problem": str(error), "conforms": False})
            else:
                reports.append(report)
                entries.append({**dataclasses.asdict(report), "conforms": report.conforms})
            advance(case.name)
    conforms = all(entry["conforms"] for entry in entries)
    rows = [entry for entry in entries if "problem" not in entry]
    if as_json or rows:
        output.print_report({"cases": entries, "conforms": conforms}, as_json, rows)
    for entry in entries:
        if "problem" in entry:
            print(f"pine_engine: {entry['problem']}", file=sys.stderr)
    if not conforms:
        has_failed = any(not report.conforms for report in reports)
        raise typer.Exit(output.FAILED if has_failed else output.BAD_INPUT)
