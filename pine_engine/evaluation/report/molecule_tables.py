"""The paper's table of molecules, from the JSON of the subcommand `molecules`."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel

from pine_engine.debias.table import method_label
from pine_engine.evaluation.report.key_findings import SUBJECT
from pine_engine.evaluation.report.tables import NONE, Part, Table, note, task_label
from pine_engine.molecules.metrics import MeanError, MethodMetrics, References
from pine_engine.molecules.request_rows import PROPERTIES
from pine_engine.prompts.request import parse_json, read_text

TASK = "molecule_generation"


class MoleculeReport(BaseModel):
    """JSON of `molecules --json`, without the keys that the table does not need."""

    model: str
    data: str
    predictor_data: str
    requests: int
    orders: int
    seed: int
    dtype: str
    methods: list[MethodMetrics]
    references: References

    @property
    def label(self) -> str:
        """Model and data."""
        return f"{self.model}, {self.data}"


def read_molecule_report(path: Path) -> MoleculeReport:
    """Return the JSON of a file.

    Raises:
        InputError: The file is not the output of `molecules --json`.
    """
    return parse_json(MoleculeReport, read_text(path), str(path))


def molecule_part(reports: Sequence[MoleculeReport]) -> Part:
    """Return validity and errors of each method, and the properties whose error PINE increases."""
    return Part(
        heading=task_label(TASK),
        sentences=tuple(sentence for report in reports for sentence in _findings(report)),
        tables=(molecule_table(reports),),
    )


def molecule_table(reports: Sequence[MoleculeReport]) -> Table:
    """Return a row for each method, for its difference to the first, and for the reference errors."""
    return Table(
        title="Molecules",
        columns=(
            *("model and data", "method", "requests", "orders"),
            *("written", "valid, %", "unique, %", "novel, %", "changes with the order, %"),
            *(f"{name}, {unit}" for name, unit in PROPERTIES.items()),
        ),
        rows=tuple(row for report in reports for row in _rows(report)),
        heads=2,
        note=note("molecules"),
    )


def _rows(report: MoleculeReport) -> Iterator[tuple[str, ...]]:
    counts = (str(report.requests), str(report.orders))
    for one in report.methods:
        shares = map(_percent, (one.valid, one.unique, one.novel, one.changed))
        yield report.label, method_label(one.method), *counts, str(one.written), *shares, *_cells(one.errors)
    first = method_label(report.methods[0].method)
    without_shares = [
        (f"{method_label(one.method)} less {first}", _cells(one.more_error, sign="+"))
        for one in report.methods
        if one.more_error is not None
    ]
    without_shares.append(("the predictor's own", _cells(report.references.predictor)))
    without_shares.append(("molecules of other requests", _cells(report.references.mismatched_baseline)))
    for label, cells in without_shares:
        yield report.label, label, *counts, *(NONE,) * 5, *cells


def _findings(report: MoleculeReport) -> Iterator[str]:
    first = report.methods[0]
    for one in report.methods:
        if one.method != SUBJECT or one.more_error is None:
            continue
        names: dict[bool, list[str]] = {True: [], False: []}
        for name, more in one.more_error.items():
            beyond = "within" if more.low <= 0 <= more.high else "beyond"
            names[more.mean > 0].append(f"{name} ({_text(more, '+')}, {beyond} chance)")
        yield note(
            "molecule_findings",
            label=report.label,
            requests=report.requests,
            orders=report.orders,
            method=method_label(one.method),
            first=method_label(first.method),
            larger=", ".join(names[True]) or "no property",
            smaller=", ".join(names[False]) or "none",
            changed=_percent(one.changed),
            first_changed=_percent(first.changed),
        )


def _cells(errors: Mapping[str, MeanError] | None, sign: str = "") -> list[str]:
    if errors is None:
        return [NONE] * len(PROPERTIES)
    return [f"{_text(errors[name], sign)}, n = {errors[name].n}" for name in PROPERTIES]


def _text(error: MeanError, sign: str = "") -> str:
    return f"{error.mean:{sign}.3g} ({error.low:{sign}.3g} to {error.high:{sign}.3g})"


def _percent(share: float | None) -> str:
    return NONE if share is None else f"{100 * share:.1f}"
