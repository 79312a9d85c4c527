"""Subcommand `molecules`: validity and property errors of generated molecules, for each method."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from pine_engine.cli import output
from pine_engine.cli.options import Limit, Methods, method_names
from pine_engine.cli.output import CommandResult
from pine_engine.errors import InputError
from pine_engine.methods.table import METHODS
from pine_engine.molecules import metrics as measured
from pine_engine.molecules.metrics import MeanError, MethodMetrics
from pine_engine.molecules.request_rows import PROPERTIES, read_molecules, split_molecules

SHIPPED = "molecules"
MAX_ORDERS = 720


def molecules(
    data: Path,
    predictor_data: Annotated[Path, typer.Option()],
    model: str = SHIPPED,
    methods: Methods = None,
    orders: Annotated[int, typer.Option(min=1, max=MAX_ORDERS)] = 3,
    limit: Limit = None,
    seed: int = 0,
    dtype: str = "auto",
    device: str = "cpu",
) -> CommandResult:
    """Generate molecules for requested properties, and measure their validity and property errors.

    Args:
        data: JSONL file of molecules whose properties are requested.
        predictor_data: JSONL file the model was trained on; the predictor uses the half that was left out.
        model: Folder of a model created by train-molecules. Default: the shipped model.
        methods: Names of methods.
        orders: Number of random orders of each request's properties.
        limit: Maximum number of rows. Default: all.
        seed: Seed of the orders.
        dtype: float32, bfloat16, float16, 4bit, or auto: the dtype of the stored weights where it is fast.
        device: cpu, cuda, ...
    """
    names = method_names(methods)
    requests, _ = read_molecules(data, limit)
    training_data, _ = read_molecules(predictor_data)
    training_smiles = {molecule.smiles for molecule in training_data}
    if shared := [molecule.id for molecule in requests if molecule.smiles in training_smiles]:
        both = f"{len(shared)} molecules of {data} are also in {predictor_data}, such as {shared[0]}"
        raise InputError(f"{both}; request properties of molecules outside the training data")

    engine = output.load(model, dtype, device, needs_tokenizer=True)

    from pine_engine.molecules.generate import generate_molecules, random_orders

    predictor = measured.Predictor(split_molecules(training_data)["predictor"])
    request_orders = [random_orders(molecule, orders, seed) for molecule in requests]
    with output.progress(len(names) * len(requests) * orders) as advance:
        generated = generate_molecules(engine, requests, request_orders, names, advance)
    metrics = measured.compute_metrics(generated, requests, predictor, training_smiles)
    references = measured.compute_references(requests, predictor)
    report: dict[str, Any] = {
        "model": engine.model_name,
        "data": data.name,
        "predictor_data": predictor_data.name,
    }
    report |= {"requests": len(requests), "orders": orders, "seed": seed, "dtype": engine.dtype}
    report |= {"methods": metrics, "references": references}
    errors = "errors are of valid molecules only, with 95 % intervals over requests"
    caption = f"{len(requests)} requests in {orders} orders each; {errors}"
    return CommandResult(report, _rows(metrics, references), caption=caption)


def _rows(metrics: list[MethodMetrics], references: dict[str, dict[str, MeanError]]) -> list[dict[str, Any]]:
    """Return rows of fractions, then of errors per property, with a column per method and reference."""
    labels = {one.method: METHODS[one.method].label for one in metrics}
    rows: list[dict[str, Any]] = []
    for name in ("valid", "unique", "novel", "changed"):
        fractions = {labels[one.method]: getattr(one, name) for one in metrics}
        percents = {label: None if value is None else f"{value:.1%}" for label, value in fractions.items()}
        rows.append({"": name, **percents})
    columns = {labels[one.method]: one.errors for one in metrics} | references
    for name, unit in PROPERTIES.items():
        errors = {title: _interval(by_property, name) for title, by_property in columns.items()}
        rows.append({"": f"{name}, {unit}", **errors})
    first, *others = metrics
    for name in PROPERTIES if others else ():
        differences = {labels[one.method]: _interval(one.more_error, name, "+") for one in others}
        rows.append({"": f"{name} above {labels[first.method]}", **differences})
    return rows


def _interval(errors: Mapping[str, MeanError] | None, name: str, sign: str = "") -> str | None:
    if errors is None:
        return None
    error = errors[name]
    return f"{error.mean:{sign}.3g} [{error.low:{sign}.3g}, {error.high:{sign}.3g}]"
