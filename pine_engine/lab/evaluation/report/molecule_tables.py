"""The paper's table of molecules, from the JSON of the subcommand `molecules`."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel

from pine_engine.lab.debias.measured import method_label
from pine_engine.lab.evaluation.report.key_findings import SUBJECT, finding
from pine_engine.lab.evaluation.report.runs import NONE
from pine_engine.lab.evaluation.report.tables import Part, quantity, table, task_label, text
from pine_engine.lab.molecules.metrics import MeanError, MethodMetrics
from pine_engine.lab.molecules.request_rows import PROPERTIES
from pine_engine.prompts.request import parse_json
from pine_engine.rows.files import read_text

TASK = "molecule_generation"


class MoleculeReport(BaseModel):
    """Result of the subcommand `molecules`, and its JSON."""

    model: str
    data: str
    predictor_data: str
    requests: int
    orders: int
    seed: int
    dtype: str
    methods: list[MethodMetrics]
    references: dict[str, dict[str, MeanError]]


def read_molecule_report(path: Path) -> MoleculeReport:
    """Return the JSON of a file. Raises InputError if it is not the output of `molecules --json`."""
    return parse_json(MoleculeReport, read_text(path), str(path))


def molecule_part(reports: Sequence[MoleculeReport]) -> Part:
    """Return validity and errors of each method."""
    return Part(
        heading=task_label(TASK),
        tables=(table("molecules", [line for report in reports for line in molecule_lines(report)], 2),),
    )


def molecule_lines(report: MoleculeReport) -> Iterator[dict[str, str]]:
    """Yield the cells of each method, of its difference to the first, and of the reference errors."""

    def line(
        label: str, errors: Mapping[str, MeanError] | None, sign: str = "", **shares: str
    ) -> dict[str, str]:
        cells = {
            f"{name}, {unit}": f"{_text(errors[name], sign)}, n = {errors[name].n}" if errors else NONE
            for name, unit in PROPERTIES.items()
        }
        heads = {"model and data": f"{report.model}, {report.data}", "method": label}
        return {**heads, "requests": str(report.requests), "orders": str(report.orders), **shares, **cells}

    for one in report.methods:
        names = ("valid", "unique", "novel")
        percents = {f"{name}, %": quantity(getattr(one, name)) for name in names}
        percents["changes with the order, %"] = quantity(one.changed)
        yield line(method_label(one.method), one.errors, written=str(one.written), **percents)
    first = method_label(report.methods[0].method)
    for one in report.methods:
        if one.more_error is not None:
            yield line(f"{method_label(one.method)} less {first}", one.more_error, "+")
    yield line("the predictor's own", report.references.get("predictor"))
    yield line("molecules of other requests", report.references.get("mismatched_baseline"))


def molecule_findings(report: MoleculeReport) -> Iterator[str]:
    """Yield the properties whose error PINE increases or decreases."""
    first = report.methods[0]
    for one in report.methods:
        if one.method != SUBJECT or one.more_error is None:
            continue
        found: dict[str, list[str]] = {}
        for name, more in one.more_error.items():
            verdict = finding(more.mean, (more.low, more.high), more.n)
            found.setdefault(verdict, []).append(f"{name} by {_text(more, '+')} {PROPERTIES[name]}")
        yield text(
            "molecule_findings",
            label=f"{report.model}, {report.data}",
            requests=report.requests,
            orders=report.orders,
            method=method_label(one.method),
            first=method_label(first.method),
            findings="; ".join(f"{verdict} in {', '.join(names)}" for verdict, names in found.items()),
            changed=quantity(one.changed),
            first_changed=quantity(first.changed),
        )


def _text(error: MeanError, sign: str = "") -> str:
    return f"{error.mean:{sign}.3g} ({error.low:{sign}.3g} to {error.high:{sign}.3g})"
