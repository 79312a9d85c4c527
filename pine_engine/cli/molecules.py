"""The subcommand `molecules`: validity and property errors of generated molecules, for each method."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pine_engine.console import terminal
from pine_engine.console.options import AsJson, Device, Dtype, Methods, method_names
from pine_engine.errors import InputError
from pine_engine.methods.table import METHODS

if TYPE_CHECKING:
    from pine_engine.molecules.metrics import MeanError, MethodMetrics, References

SHIPPED = "molecules"
MAX_ORDERS = 720


def molecules(
    data: Annotated[Path, typer.Argument(help="JSONL of molecules whose properties are requested.")],
    predictor_data: Annotated[
        Path, typer.Option(help="JSONL the model was trained on; half of it was excluded.")
    ],
    model: Annotated[
        str, typer.Option(help="Folder of a model made by train-molecules. Default: the shipped model.")
    ] = SHIPPED,
    methods: Methods = None,
    orders: Annotated[
        int, typer.Option(help="Random orders of each request's properties.", min=1, max=MAX_ORDERS)
    ] = 3,
    limit: Annotated[int | None, typer.Option(help="Rows to read.", min=1)] = None,
    seed: Annotated[int, typer.Option(help="Seed of the orders.")] = 0,
    dtype: Dtype = "auto",
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Generate molecules for requested properties, and measure their validity and property errors."""
    from pine_engine.molecules.request_rows import read_molecules, split_molecules

    names = method_names(methods)
    requests = read_molecules(data, limit).molecules
    training_data = read_molecules(predictor_data).molecules
    training_smiles = {molecule.smiles for molecule in training_data}
    if shared := [molecule.id for molecule in requests if molecule.smiles in training_smiles]:
        raise InputError(
            f"{len(shared)} molecules of {data} are also in {predictor_data}, such as {shared[0]}; request "
            "properties of molecules outside the training data"
        )

    engine = terminal.load(model, dtype, device, reads_text=True)

    from pine_engine.molecules.generate import generate_molecules, random_orders
    from pine_engine.molecules.metrics import Predictor, compute_metrics, compute_references

    predictor = Predictor(split_molecules(training_data).predictor)
    request_orders = [random_orders(molecule, orders, seed) for molecule in requests]
    with terminal.progress(len(names) * len(requests) * orders) as advance:
        generated = generate_molecules(engine, requests, request_orders, names, advance)
    metrics = compute_metrics(generated, requests, predictor, training_smiles)
    references = compute_references(requests, predictor)
    report = {
        "model": engine.model_name,
        "data": data.name,
        "predictor_data": predictor_data.name,
        "requests": len(requests),
        "orders": orders,
        "seed": seed,
        "dtype": engine.dtype,
        "methods": [one.model_dump(mode="json") for one in metrics],
        "references": references.model_dump(mode="json"),
    }
    terminal.print_report(report, as_json, _rows(metrics, references))
    if not as_json:
        terminal.say(
            f"{len(requests)} requests in {orders} orders each; errors are of valid molecules only, with "
            "95 % intervals over requests"
        )


def _rows(metrics: "list[MethodMetrics]", references: "References") -> list[dict[str, Any]]:
    """Return rows of fractions, then of errors per property, with a column per method and reference."""
    from pine_engine.molecules.request_rows import PROPERTIES

    fractions = ("valid", "unique", "novel", "changed")
    rows: list[dict[str, Any]] = [
        {"": name, **{METHODS[one.method].label: _percent(getattr(one, name)) for one in metrics}}
        for name in fractions
    ]
    for name, unit in PROPERTIES.items():
        rows.append(
            {
                "": f"{name}, {unit}",
                **{METHODS[one.method].label: _number(one.errors, name) for one in metrics},
                "predictor": _number(references.predictor, name),
                "mismatched_baseline": _number(references.mismatched_baseline, name),
            }
        )
    first, *others = metrics
    if others:
        rows += [
            {
                "": f"{name} above {METHODS[first.method].label}",
                **{METHODS[one.method].label: _number(one.more_error, name, "+") for one in others},
            }
            for name in PROPERTIES
        ]
    return rows


def _percent(fraction: float | None) -> str | None:
    return None if fraction is None else f"{fraction:.1%}"


def _number(errors: Mapping[str, "MeanError"] | None, name: str, sign: str = "") -> str | None:
    if errors is None:
        return None
    one = errors[name]
    return f"{one.mean:{sign}.3g} [{one.low:{sign}.3g}, {one.high:{sign}.3g}]"
