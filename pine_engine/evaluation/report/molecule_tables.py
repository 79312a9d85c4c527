"""The paper's table of molecules, from what the verb `molecules` has printed."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel

from pine_engine.evaluation.report.findings import SUBJECT
from pine_engine.evaluation.report.tables import NONE, Part, Table, task_label
from pine_engine.evaluation.summary.method_names import method_label
from pine_engine.molecules.metrics import MeanError, MethodMetrics, References
from pine_engine.molecules.request_rows import PROPERTIES
from pine_engine.prompts.inputs import parse_json, read_text

TASK = "molecule_generation"


class MoleculeReport(BaseModel):
    """What `molecules --json` prints, as far as the table has it."""

    model: str
    data: str
    predictor_data: str
    requests: int
    orders: int
    seed: int
    dtype: str
    methods: list[MethodMetrics]
    references: References


def read_molecule_report(path: Path) -> MoleculeReport:
    """What was printed into a file. Raises InputError that says what is wrong with it."""
    return parse_json(MoleculeReport, read_text(path), str(path))


def molecule_part(reports: Sequence[MoleculeReport]) -> Part:
    """Validity and errors of each method, and where PINE's errors are the larger ones."""
    return Part(
        heading=task_label(TASK),
        sentences=tuple(said for report in reports for said in _findings(report)),
        tables=(molecule_table(reports),),
    )


def molecule_table(reports: Sequence[MoleculeReport]) -> Table:
    """A row for each method, for what it has more than the first, and for what errors are compared with."""
    return Table(
        title="Molecules",
        columns=(
            *(
                "model and data",
                "method",
                "requests",
                "orders",
                "written",
                "valid, %",
                "unique, %",
                "novel, %",
            ),
            *("changes with the order, %", *(f"{name}, {unit}" for name, unit in PROPERTIES.items())),
        ),
        rows=tuple(row for report in reports for row in _rows(report)),
        heads=2,
        note=(
            "Mean absolute errors between what was requested and what a predictor, trained on other "
            "molecules, says of the valid ones, with 95 % intervals over requests; invalid ones have no "
            "properties and are counted apart. Unique: of the valid ones; novel: of the unique ones, not "
            "among the training data. Lower errors are better, down to about the predictor's own; molecules "
            "of other requests are what a model would get that does not read its request."
        ),
    )


def _rows(report: MoleculeReport) -> Iterator[tuple[str, ...]]:
    label = f"{report.model}, {report.data}"
    counts = (str(report.requests), str(report.orders))
    for one in report.methods:
        shares = (_share(share) for share in (one.valid, one.unique, one.novel, one.changed))
        yield label, method_label(one.method), *counts, str(one.written), *shares, *_errors(one.errors)
    nothing = (NONE,) * 5
    first = method_label(report.methods[0].method)
    for one in report.methods:
        if one.more_error is not None:
            name = f"{method_label(one.method)} less {first}"
            yield label, name, *counts, *nothing, *_errors(one.more_error, sign="+")
    yield label, "the predictor's own", *counts, *nothing, *_errors(report.references.predictor)
    yield (
        label,
        "molecules of other requests",
        *counts,
        *nothing,
        *_errors(report.references.mismatched_baseline),
    )


def _findings(report: MoleculeReport) -> Iterator[str]:
    first = report.methods[0]
    for one in report.methods:
        if one.method != SUBJECT or one.more_error is None:
            continue
        names: dict[bool, list[str]] = {True: [], False: []}
        for name, more in one.more_error.items():
            beyond = "within" if more.low <= 0 <= more.high else "beyond"
            names[more.mean > 0].append(f"{name} ({_written(more, '+')}, {beyond} chance)")
        yield (
            f"{report.model}, {report.data}, n = {report.requests} requests in {report.orders} orders: "
            f"{method_label(one.method)}'s error is larger than {method_label(first.method)}'s in "
            f"{', '.join(names[True]) or 'no property'}; smaller or the same in "
            f"{', '.join(names[False]) or 'none'}. Its molecule changes with the order for "
            f"{_share(one.changed)} % of the requests, {method_label(first.method)}'s for "
            f"{_share(first.changed)} %."
        )


def _errors(errors: Mapping[str, MeanError] | None, sign: str = "") -> Iterator[str]:
    for name in PROPERTIES:
        yield NONE if errors is None else f"{_written(errors[name], sign)}, n = {errors[name].n}"


def _written(one: MeanError, sign: str = "") -> str:
    return f"{one.mean:{sign}.3g} ({one.low:{sign}.3g} to {one.high:{sign}.3g})"


def _share(share: float | None) -> str:
    return NONE if share is None else f"{100 * share:.1f}"
