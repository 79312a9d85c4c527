"""Subcommand `bench`: time and memory against the stock model, and times of whole jobs."""

from typing import Annotated, Any

import typer

from pine_engine.benchmark.shapes import Workload
from pine_engine.cli import output
from pine_engine.cli.options import Methods, ModelOptions, Positive, method_names
from pine_engine.cli.output import CommandResult
from pine_engine.errors import InputError
from pine_engine.models.load import TENSOR_PARALLEL


def bench(
    documents: Positive = 2,
    document_tokens: Positive = 200,
    max_new_tokens: Annotated[int, typer.Option(min=2)] = 32,
    methods: Methods = None,
    repeats: Positive = 3,
    trace: bool = False,
    end_to_end: bool = False,
    model: ModelOptions = ModelOptions(),
) -> CommandResult:
    """Time every method against the stock model, in turns on the same random tokens.

    Args:
        documents: Number of documents.
        document_tokens: Length of each document, in tokens.
        max_new_tokens: Length of the answer, in tokens.
        methods: Names of methods.
        repeats: Rounds that are counted, after a warm-up round.
        trace: Also time each method with the document-level trace.
        end_to_end: Time traced runs and shuffles as on the page, up to their first token, first answers,
            first order and end, instead of prefill and decode.
        model: Model to measure.
    """
    selected = method_names(methods)
    if model.device == TENSOR_PARALLEL:
        raise InputError("--device tp is not supported by `bench`, which measures one process")
    if end_to_end and (trace or methods):
        raise InputError("--end-to-end cannot be combined with --trace and --methods")
    work = Workload(model.model, model.dtype, model.device, documents, document_tokens, max_new_tokens)

    engine = model.load()
    names = [method.name for method in engine.select_methods(selected)]

    from pine_engine.benchmark import times  # imports torch

    work.layout(engine)  # fits into the context
    if end_to_end:
        with output.progress((repeats + 1) * times.NUM_JOB_RUNS) as advance:
            report = times.measure_jobs(engine, work, repeats, advance)
        rows: list[dict[str, Any]] = [{"job": "stock model, one answer", "seconds": report["stock_s"]}]
        rows += [{"job": times.JOBS[name], **values} for name, values in report["jobs"].items()]
        rows += [
            {"job": f"up to {count} orders, default methods: {times.MOMENTS[moment]}", **values}
            for count, moments in report["orders"].items()
            for moment, values in moments.items()
        ]
        return CommandResult(report, rows)
    with output.progress(times.num_steps(names, repeats, trace=trace)) as advance:
        point = times.measure_methods(engine, work, names, repeats, advance, trace=trace)
    return CommandResult(point, _point_rows(point))


def _point_rows(point: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a row for the stock model, for each method and for all methods together."""
    size = {"tokens": point["n"], "documents": point["documents"]}
    together = {key: value for key, value in point["together"].items() if key != "methods"}
    named = {"stock": point["stock"], **point["methods"], "all together": together}
    return [{"method": name, **size, **values} for name, values in named.items()]
