"""Subcommand `conformance`: comparison with recorded outputs of the authors' code."""

from pathlib import Path
from typing import Any

from pine_engine.cli import output
from pine_engine.cli.output import CommandResult
from pine_engine.errors import InputError


def conformance(folder: Path) -> CommandResult:
    """Compare with recorded outputs of the authors' code; exit 1 beyond tolerance, 2 for an invalid case.

    Args:
        folder: Folder that contains recorded cases.
    """
    cases = sorted(path.parent for path in folder.glob("**/case.json"))
    if not cases:
        raise InputError(f"{folder} has no conformance case: expected folders with a case.json")

    from pine_engine.invariance.conformance import check_case

    entries: list[dict[str, Any]] = []
    problems: list[str] = []
    with output.progress(len(cases)) as advance:
        for case in cases:
            try:
                entries.append(check_case(case))
            except InputError as error:
                problems.append(str(error))
                entries.append({"case": case.name, "problem": str(error), "conforms": False})
            advance(case.name)
    rows = [entry for entry in entries if "problem" not in entry]
    status = 0
    if not all(entry["conforms"] for entry in entries):
        status = output.BAD_INPUT if all(row["conforms"] for row in rows) else output.FAILED
    return CommandResult({"cases": entries, "conforms": not status}, rows, problems, status)
