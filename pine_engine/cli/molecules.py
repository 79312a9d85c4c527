"""The verb `molecules`: the paper's table of molecules, for any method, over random orders."""

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
MOST_ORDERS = 720


def molecules(
    data: Annotated[Path, typer.Argument(help="JSONL of molecules whose properties are requested.")],
    predictor_data: Annotated[
        Path, typer.Option(help="The JSONL that the model was trained on; half of it was kept from it.")
    ],
    model: Annotated[
        str, typer.Option(help="Folder of a model made by train-molecules, in place of ours.")
    ] = SHIPPED,
    methods: Methods = None,
    orders: Annotated[
        int, typer.Option(help="Random orders of each request's properties.", min=1, max=MOST_ORDERS)
    ] = 3,
    limit: Annotated[int | None, typer.Option(help="Rows to read.", min=1)] = None,
    seed: Annotated[int, typer.Option(help="Of the orders.")] = 0,
    dtype: Dtype = "auto",
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Write molecules for requested properties; how many are valid, and how far their properties are off."""
    from pine_engine.molecules.rows import read_molecules, split_halves

    names = method_names(methods)
    requests = read_molecules(data, limit).molecules
    trained_on = read_molecules(predictor_data).molecules
    known = {molecule.smiles for molecule in trained_on}
    if shared := [molecule.id for molecule in requests if molecule.smiles in known]:
        raise InputError(
            f"{len(shared)} molecules of {data} are in {predictor_data} too, such as {shared[0]}; request "
            "properties of molecules that nothing was trained on"
        )

    engine = terminal.load(model, dtype, device, reads_text=True)

    from pine_engine.molecules.generate import random_orders, write_molecules
    from pine_engine.molecules.metrics import judge, references
    from pine_engine.molecules.predictor import Predictor

    predictor = Predictor(split_halves(trained_on).judging)
    tried = [random_orders(molecule, orders, seed) for molecule in requests]
    with terminal.progress(len(names) * len(requests) * orders) as advance:
        written = write_molecules(engine, requests, tried, names, advance)
    metrics = judge(written, requests, predictor, known)
    compared = references(requests, predictor)
    report = {
        "model": engine.model_name,
        "data": data.name,
        "predictor_data": predictor_data.name,
        "requests": len(requests),
        "orders": orders,
        "seed": seed,
        "dtype": engine.dtype,
        "methods": [one.model_dump(mode="json") for one in metrics],
        "references": compared.model_dump(mode="json"),
    }
    terminal.print_report(report, as_json, _rows(metrics, compared))
    if not as_json:
        terminal.say(
            f"{len(requests)} requests in {orders} orders each; errors are of valid molecules alone, with "
            "95 % intervals over requests"
        )


def _rows(metrics: "list[MethodMetrics]", compared: "References") -> list[dict[str, Any]]:
    """The shares, then the errors of each property; a column for each method and each reference."""
    from pine_engine.molecules.rows import PROPERTIES

    shares = ("valid", "unique", "novel", "changed")
    rows: list[dict[str, Any]] = [
        {"": name, **{METHODS[one.method].label: _percent(getattr(one, name)) for one in metrics}}
        for name in shares
    ]
    for name, unit in PROPERTIES.items():
        rows.append(
            {
                "": f"{name}, {unit}",
                **{METHODS[one.method].label: _number(one.errors, name) for one in metrics},
                "predictor": _number(compared.predictor, name),
                "strangers": _number(compared.strangers, name),
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


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{share:.1%}"


def _number(errors: Mapping[str, "MeanError"] | None, name: str, sign: str = "") -> str | None:
    if errors is None:
        return None
    one = errors[name]
    return f"{one.mean:{sign}.3g} [{one.low:{sign}.3g}, {one.high:{sign}.3g}]"
