"""The verb `bench`: times and memory against the stock model, where time goes, or what one waits for."""

from typing import Annotated

import typer

from pine_engine.benchmark.workload import Sweep, Workload, sweep_over
from pine_engine.console import terminal
from pine_engine.console.options import (
    AnyModelName,
    AsJson,
    Device,
    Dtype,
    Methods,
    as_ints,
    method_names,
)
from pine_engine.errors import InputError
from pine_engine.methods.table import METHODS
from pine_engine.models.load import TENSOR_PARALLEL


def bench(
    documents: Annotated[int, typer.Option(help="Number of documents.", min=1)] = 2,
    document_tokens: Annotated[int, typer.Option(help="Length of each document in tokens.", min=1)] = 200,
    max_new_tokens: Annotated[int, typer.Option(help="Tokens decoded.", min=2)] = 32,
    methods: Methods = None,
    repeats: Annotated[int, typer.Option(help="Counted rounds.", min=1)] = 3,
    sweep: Annotated[
        Sweep | None,
        typer.Option(
            help="Measure at several sizes: tokens (more documents of the same length) or documents "
            "(more and shorter ones, with as many tokens together)."
        ),
    ] = None,
    sizes: Annotated[str | None, typer.Option(help="Sizes of the sweep, separated by commas.")] = None,
    trace: Annotated[bool, typer.Option("--trace", help="Also with the trace on, for its ratio.")] = False,
    profile: Annotated[
        bool, typer.Option("--profile", help="Show where the time of each method goes instead.")
    ] = False,
    end_to_end: Annotated[
        bool,
        typer.Option(
            "--end-to-end", help="Time what somebody waits for instead: a run and a shuffle, traced."
        ),
    ] = False,
    model: AnyModelName = None,
    dtype: Dtype = "auto",
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Time every method against the stock model, in turns on the same tokens."""
    names = method_names(methods)
    if device == TENSOR_PARALLEL:
        raise InputError(f"`bench` times what one process computes; name another device than {device!r}")
    work = Workload(model, dtype, device, documents, document_tokens, max_new_tokens)
    if sizes is not None and sweep is None:
        raise InputError("--sizes belong to a sweep; give --sweep tokens or --sweep documents")
    if end_to_end and (sweep or trace or profile or methods):
        raise InputError(
            "--end-to-end measures the jobs of the page: it goes without --sweep, --trace, --profile and "
            "--methods"
        )
    wanted = None if sizes is None else as_ints(sizes, "sizes")
    works = sweep_over(work, sweep, wanted) if sweep else [work]

    engine = terminal.load(model, dtype, device)

    from pine_engine.benchmark.profiling import profile_method
    from pine_engine.benchmark.reports import bench_rows, profile_report, profile_rows
    from pine_engine.benchmark.speed import num_steps, run_benchmark

    if end_to_end:
        from pine_engine.benchmark.live import live_rows, measure_live
        from pine_engine.benchmark.live import num_steps as live_steps

        with terminal.progress(live_steps(repeats)) as advance:
            report = measure_live(engine, work, work.layout_for(engine), repeats, advance)
        terminal.print_report(report, as_json, live_rows(report))
        return
    layouts = [work.layout_for(engine) for work in works]
    if profile:
        with terminal.progress(len(works) * len(names)) as advance:
            shares = []
            for layout in layouts:
                by_method = {}
                for name in names:
                    advance(f"{layout.num_tokens} tokens: {name}")
                    by_method[name] = profile_method(engine, layout, METHODS[name], max_new_tokens)
                shares.append((layout, by_method))
        report = profile_report(engine, shares)
        terminal.print_report(report, as_json, profile_rows(report, sizes=sweep is not None))
        return
    with terminal.progress(len(works) * num_steps(names, repeats, trace=trace)) as advance:
        points = [
            run_benchmark(engine, work, layout, names, repeats, advance, trace=trace)
            for work, layout in zip(works, layouts, strict=True)
        ]
    rows = [row for point in points for row in bench_rows(point, sizes=sweep is not None)]
    report = {"sweep": sweep, "dtype": engine.dtype, "points": points} if sweep else points[0]
    terminal.print_report(report, as_json, rows)
