"""Subcommand `molecules`: validity and property errors of generated molecules, for each method."""

from pathlib import Path
from typing import Annotated

import typer

from pine_engine.cli import output
from pine_engine.cli.options import Limit, Methods, method_names
from pine_engine.cli.output import CommandResult
from pine_engine.errors import InputError
from pine_engine.lab.evaluation.report.molecule_tables import MoleculeReport, molecule_lines
from pine_engine.lab.molecules.metrics import compute_metrics, compute_references
from pine_engine.lab.molecules.predictor import Predictor
from pine_engine.lab.molecules.request_rows import read_molecules, split_molecules

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
        model: Folder of a model created by tools/train_molecules.py. Default: the shipped model.
        methods: Names of methods.
        orders: Number of random orders of each request's properties.
        limit: Maximum number of rows. Default: all.
        seed: Seed of the orders.
        dtype: float32, bfloat16, float16, 4bit, or auto: that of the stored weights if the CPU supports it.
        device: cpu, cuda, ...
    """
    selected = method_names(methods)
    requests, _ = read_molecules(data, limit)
    training_data, _ = read_molecules(predictor_data)
    training_smiles = {molecule.smiles for molecule in training_data}
    if shared := [molecule.id for molecule in requests if molecule.smiles in training_smiles]:
        both = f"{len(shared)} molecules of {data} are also in {predictor_data}, such as {shared[0]}"
        raise InputError(f"{both}; request properties of molecules outside the training data")

    engine = output.load(model, dtype, device, needs_tokenizer=True)
    names = [method.name for method in engine.select_methods(selected)]

    from pine_engine.lab.molecules.generate import generate_molecules, random_orders

    predictor = Predictor(split_molecules(training_data)["predictor"])
    request_orders = [random_orders(molecule, orders, seed) for molecule in requests]
    with output.progress(len(names) * len(requests) * orders) as advance:
        generated = generate_molecules(engine, requests, request_orders, names, advance)
    metrics = compute_metrics(generated, requests, predictor, training_smiles)
    references = compute_references(requests, predictor)
    report = MoleculeReport(
        model=engine.model_name,
        data=data.name,
        predictor_data=predictor_data.name,
        requests=len(requests),
        orders=orders,
        seed=seed,
        dtype=engine.dtype,
        methods=metrics,
        references=references,
    )
    errors = "errors are of valid molecules only, with 95 % intervals over requests"
    caption = f"{len(requests)} requests in {orders} orders each; {errors}"
    return CommandResult(report.model_dump(), list(molecule_lines(report)), caption=caption)
