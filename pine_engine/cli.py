"""The command line: `python -m pine_engine VERB`. Results go to stdout, everything else to stderr."""

import dataclasses
import sys
from pathlib import Path
from typing import Annotated

import typer

from pine_engine.benchmark import Sweep, Workload, num_steps, run_benchmark, sweep_over
from pine_engine.conformance import CaseReport, check_case, find_cases
from pine_engine.debias import Debiased, debias_report, debias_rows, plan_debias
from pine_engine.debias import debias as run_debias
from pine_engine.engine import Engine
from pine_engine.errors import InputError, PineError
from pine_engine.events import AnswerDone, PrefillDone, RunDone
from pine_engine.inputs import read_comparison, read_labelled_comparison, read_rows
from pine_engine.invariance import OrderCell, OrderRow, compare_orders, orders_to_try, summarize
from pine_engine.methods import METHODS, get_methods
from pine_engine.permutation import MAX_ORDERS
from pine_engine.profiling import profile_method
from pine_engine.report import (
    bench_rows,
    broken_promises,
    compare_report,
    profile_report,
    profile_rows,
    selftest_report,
    verify_report,
)
from pine_engine.selftest import plan_checks
from pine_engine.terminal import load, print_report, progress, stderr

BROKEN = 1
"""Exit status when a check did not hold."""

BAD_INPUT = 2

app = typer.Typer(
    help="Does the order of the documents change a language model's answer, why, and what removes it?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Methods = Annotated[
    str | None, typer.Option(help="Methods, separated by commas, or all; the default ones if not given.")
]
ModelName = Annotated[
    str | None,
    typer.Option(
        "--model", envvar="PINE_MODEL", help="Hub id, folder or GGUF file; the embedded model by default."
    ),
]
AnyModelName = Annotated[
    str | None,
    typer.Option(
        "--model",
        envvar="PINE_MODEL",
        help="As elsewhere, or random:llama-8b or random:tiny: that shape with random weights.",
    ),
]
Dtype = Annotated[str, typer.Option(help="float32, bfloat16 or float16.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, ...")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]


def main() -> None:
    """Runs the command line; a PineError becomes one line on stderr and exit status 2."""
    try:
        app()
    except PineError as error:
        print(f"pine_engine: {error}", file=sys.stderr)
        raise SystemExit(BAD_INPUT) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None


@app.command()
def compare(
    file: Annotated[
        Path, typer.Argument(help='JSON: {"question", "documents": [text or {"title", "text"}], ...}.')
    ],
    methods: Methods = None,
    max_new_tokens: Annotated[int, typer.Option(help="Longest answer, in tokens.")] = 64,
    model: ModelName = None,
    dtype: Dtype = "float32",
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Answer one question over documents with every method."""
    names = _names(methods)
    comparison = read_comparison(file)
    engine = load(model, dtype, device, reads_text=True)
    layout = comparison.tokenize(engine)
    with progress(2 * len(names)) as advance:
        for event in engine.generate(layout, methods=names, max_new_tokens=max_new_tokens):
            if isinstance(event, PrefillDone):
                advance(f"{event.method} has read {layout.num_tokens} tokens")
            elif isinstance(event, AnswerDone):
                advance(f"{event.answer.method} has answered")
            elif isinstance(event, RunDone):
                report = compare_report(engine, event.result)
    print_report(report, as_json, report["results"])


@app.command()
def verify(
    data: Annotated[Path | None, typer.Argument(help="JSONL, one example a line.")] = None,
    self_test: Annotated[
        bool,
        typer.Option("--self-test", help="Check what exactness rests on, on this machine; needs no data."),
    ] = False,
    limit: Annotated[int | None, typer.Option(help="Rows to read.", min=1)] = None,
    shuffles: Annotated[int, typer.Option(help="Other orders of each row's documents.", min=1)] = 5,
    methods: Methods = None,
    new_tokens: Annotated[int, typer.Option(help="Tokens decoded in every order.", min=1)] = 16,
    seed: Annotated[int, typer.Option(help="Of the shuffles.")] = 0,
    model: AnyModelName = None,
    dtype: Dtype = "float32",
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Shuffle the documents of each row and compare all logits; exit 1 if a promise was broken."""
    if self_test == (data is not None):
        raise InputError("verify needs one of two things: a file of data, or --self-test; give one of them")
    if data is None:
        _self_test(load(model, dtype, device), shuffles, seed, as_json)
        return
    names = _names(methods)
    rows = read_rows(data, limit)
    engine = load(model, dtype, device, reads_text=True)
    layouts = [row.comparison().tokenize(engine) for row in rows]
    for layout in layouts:
        engine.check_length(layout, new_tokens)
    orders = [orders_to_try(layout.num_documents, shuffles, seed) for layout in layouts]
    summaries = []
    with progress(sum(map(len, orders))) as advance:
        for row, layout, row_orders in zip(rows, layouts, orders, strict=True):
            events = compare_orders(
                engine, layout, methods=names, orders=row_orders, max_new_tokens=new_tokens, stop_at_end=False
            )
            results: list[dict[str, OrderCell]] = []
            for event in events:
                if isinstance(event, OrderRow):
                    results.append(event.cells)
                    advance(row.id)
            summaries.append((row.id, summarize(results)))
    report = verify_report(engine, summaries)
    print_report(report, as_json, [{"method": name, **values} for name, values in report["summary"].items()])
    if broken := broken_promises(report):
        stderr.print(f"the order of the documents changed the output of: {', '.join(broken)}")
        raise typer.Exit(BROKEN)


@app.command()
def debias(
    files: Annotated[
        list[Path], typer.Argument(help='JSON as for compare, which may hold "labels"; pride needs several.')
    ],
    wrapper: Annotated[str, typer.Option(help="Permutation, PriDe or calibration; see `methods`.")],
    base: Annotated[str, typer.Option(help="The method that is run again and again.")] = "vanilla",
    labels: Annotated[
        str | None,
        typer.Option(help="What the model may answer, separated by commas; in place of the files' labels."),
    ] = None,
    majority: Annotated[
        bool, typer.Option("--majority", help="Let generated answers vote, in place of averaging.")
    ] = False,
    max_new_tokens: Annotated[int, typer.Option(help="Longest generated answer, in tokens.")] = 64,
    samples: Annotated[int, typer.Option(help="Orders of permutation_sampled.")] = 10,
    seed: Annotated[int, typer.Option(help="Of the sampled orders and of pride's samples.")] = 0,
    max_orders: Annotated[int, typer.Option(help="Most orders of permutation_full.")] = MAX_ORDERS,
    model: ModelName = None,
    dtype: Dtype = "float32",
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Answer questions with a wrapper around one method: permutation, PriDe or contextual calibration."""
    comparisons = [read_labelled_comparison(file) for file in files]
    if labels is not None:
        given = [label.strip() for label in labels.split(",") if label.strip()]
        comparisons = [comparison.model_copy(update={"labels": given}) for comparison in comparisons]
    plan = plan_debias(
        comparisons,
        wrapper=wrapper,
        base=base,
        majority=majority,
        max_new_tokens=max_new_tokens,
        samples=samples,
        seed=seed,
        max_orders=max_orders,
    )
    engine = load(model, dtype, device, reads_text=True)
    results: list[Debiased] = []
    with progress(plan.num_prompts) as advance:
        for event in run_debias(engine, plan):
            if isinstance(event, PrefillDone):
                advance(f"{event.method} has read a prompt")
            elif isinstance(event, Debiased):
                results.append(event)
    report = debias_report(engine, plan, list(map(str, files)), results)
    print_report(report, as_json, debias_rows(report))


def _self_test(engine: Engine, shuffles: int, seed: int, as_json: bool) -> None:
    planned = plan_checks(engine, shuffles=shuffles, seed=seed)
    checks = []
    with progress(len(planned)) as advance:
        for check in planned:
            checks.append(check())
            advance(checks[-1].name)
    report = selftest_report(engine, checks)
    rows = [
        {"": check.verdict, "check": check.name, "found": check.found, "meaning": check.meaning}
        for check in checks
    ]
    print_report(report, as_json, rows)
    if not report["passed"]:
        failed = [check.name for check in checks if check.is_promised and not check.holds]
        stderr.print(f"exactness cannot be promised here: {'; '.join(failed)}", soft_wrap=True)
        raise typer.Exit(BROKEN)


@app.command()
def conformance(
    folder: Annotated[Path, typer.Argument(help="A folder with recorded cases under it.")],
    as_json: AsJson = False,
) -> None:
    """Compare with recorded outputs of the released code; exit 1 beyond the tolerance."""
    cases = find_cases(folder)
    reports: list[CaseReport] = []
    with progress(len(cases)) as advance:
        for case in cases:
            reports.append(check_case(case))
            advance(case.name)
    rows = [{**dataclasses.asdict(report), "conforms": report.conforms} for report in reports]
    conforms = all(report.conforms for report in reports)
    print_report({"cases": rows, "conforms": conforms}, as_json, rows)
    if not conforms:
        raise typer.Exit(BROKEN)


@app.command()
def bench(
    documents: Annotated[int, typer.Option(help="Number of documents.", min=1)] = 2,
    document_tokens: Annotated[int, typer.Option(help="Length of each document in tokens.", min=1)] = 200,
    new_tokens: Annotated[int, typer.Option(help="Tokens decoded.", min=2)] = 32,
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
    model: AnyModelName = None,
    dtype: Dtype = "float32",
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Time every method against the stock model, in turns on the same tokens."""
    names = _names(methods)
    work = Workload(model, dtype, device, documents, document_tokens, new_tokens)
    if sizes is not None and sweep is None:
        raise InputError("--sizes belong to a sweep; give --sweep tokens or --sweep documents")
    works = sweep_over(work, sweep, _numbers(sizes)) if sweep else [work]
    engine = load(model, dtype, device)
    layouts = [work.layout_for(engine) for work in works]
    if profile:
        with progress(len(works) * len(names)) as advance:
            shares = []
            for layout in layouts:
                by_method = {}
                for name in names:
                    advance(f"{layout.num_tokens} tokens: {name}")
                    by_method[name] = profile_method(engine, layout, METHODS[name], new_tokens)
                shares.append((layout, by_method))
        report = profile_report(engine, shares)
        print_report(report, as_json, profile_rows(report))
        return
    with progress(len(works) * num_steps(names, repeats, trace=trace)) as advance:
        points = [
            run_benchmark(engine, work, layout, names, repeats, advance, trace=trace)
            for work, layout in zip(works, layouts, strict=True)
        ]
    rows = [row for point in points for row in bench_rows(point, sizes=sweep is not None)]
    print_report({"sweep": sweep, "points": points} if sweep else points[0], as_json, rows)


def _numbers(sizes: str | None) -> list[int] | None:
    """The sizes of a sweep. Raises InputError for what is no number."""
    if sizes is None:
        return None
    try:
        return [int(size) for size in sizes.split(",")]
    except ValueError:
        raise InputError(
            f"the sizes {sizes!r} are not numbers; give whole numbers separated by commas, such as 2,5,10"
        ) from None


def _names(methods: str | None) -> list[str]:
    """Names of the methods asked for; checked before anything heavy is loaded."""
    chosen = None if methods is None else [name.strip() for name in methods.split(",") if name.strip()]
    return [method.name for method in get_methods(chosen)]
