"""Subcommand `bench`: time and memory against the stock model, profiles, and times of whole jobs."""

from itertools import product
from typing import Annotated, Any

import typer

from pine_engine.benchmark.shapes import Sweep, Workload, sweep_over
from pine_engine.cli import output
from pine_engine.cli.options import Methods, ModelOptions, Positive, method_names, parse_numbers
from pine_engine.cli.output import CommandResult
from pine_engine.errors import InputError
from pine_engine.models.load import TENSOR_PARALLEL

MIN_SHARE = 0.01  # operations with a smaller share of the time are not in the table of `bench --profile`


def bench(
    documents: Positive = 2,
    document_tokens: Positive = 200,
    max_new_tokens: Annotated[int, typer.Option(min=2)] = 32,
    methods: Methods = None,
    repeats: Positive = 3,
    sweep: Sweep | None = None,
    sizes: str | None = None,
    trace: bool = False,
    profile: bool = False,
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
        sweep: Measure several sizes. tokens: more documents of the same length. documents: more and shorter
            documents of the same total length.
        sizes: Sizes of the sweep, separated by commas: total tokens or numbers of documents.
        trace: Also time each method with the document-level trace.
        profile: Show the share of each operation in the time, instead of times.
        end_to_end: Time traced runs and shuffles as on the page, up to their first token, first order and
            end, instead of prefill and decode.
        model: Model to measure.
    """
    selected = method_names(methods)
    if model.device == TENSOR_PARALLEL:
        raise InputError("--device tp is not supported by `bench`, which measures one process")
    if sizes is not None and sweep is None:
        raise InputError("--sizes needs a sweep: give --sweep tokens or --sweep documents")
    if end_to_end and (sweep or trace or profile or methods):
        raise InputError("--end-to-end cannot be combined with --sweep, --trace, --profile and --methods")
    work = Workload(model.model, model.dtype, model.device, documents, document_tokens, max_new_tokens)
    numbers = None if sizes is None else parse_numbers(sizes, "--sizes")
    works = sweep_over(work, sweep, numbers) if sweep else [work]

    engine = model.load()
    names = [method.name for method in engine.select_methods(selected)]

    from pine_engine.benchmark import times  # imports torch

    layouts = [each.layout(engine) for each in works]  # all fit into the context
    header = output.report_header(engine)
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
    if profile:
        profiles, rows = [], []
        with output.progress(len(works) * len(names)) as advance:
            for (each, layout), name in product(zip(works, layouts, strict=True), names):
                advance(f"{layout.num_tokens} tokens: {name}")
                size = {"n": layout.num_tokens, "documents": layout.num_documents}
                for part, places in times.profile_method(engine, each, name).items():
                    profiles.append({**size, "method": name, "part": part, "places": places})
                    heads = {"method": name, "part": part, "tokens": layout.num_tokens}
                    rows += [{**heads, **place} for place in places if place["share"] >= MIN_SHARE]
        return CommandResult(header | {"profiles": profiles}, rows)
    with output.progress(len(works) * times.num_steps(names, repeats, trace=trace)) as advance:
        points = [times.measure_methods(engine, each, names, repeats, advance, trace=trace) for each in works]
    rows = [row for point in points for row in _point_rows(point)]
    return CommandResult(header | {"sweep": sweep, "points": points} if sweep else points[0], rows)


def _point_rows(point: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a row for the stock model, for each method and for all methods together."""
    size = {"tokens": point["n"], "documents": point["documents"]}
    together = {key: value for key, value in point["together"].items() if key != "methods"}
    named = {"stock": point["stock"], **point["methods"], "all together": together}
    return [{"method": name, **size, **values} for name, values in named.items()]
