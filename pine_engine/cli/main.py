"""The command line: `python -m pine_engine VERB`. Results go to stdout, everything else to stderr."""

import dataclasses
import sys
from pathlib import Path
from typing import Annotated

import torch
import typer

from pine_engine.cli.bench import bench
from pine_engine.cli.data import data
from pine_engine.cli.evaluate import evaluate
from pine_engine.cli.methods import list_methods, show_models
from pine_engine.cli.molecules import molecules
from pine_engine.cli.paper import paper
from pine_engine.cli.repeat import repeat
from pine_engine.cli.report import make_report
from pine_engine.cli.train import train_molecules
from pine_engine.console import terminal
from pine_engine.console.json_reports import (
    broken_promises,
    compare_report,
    selftest_report,
    verify_report,
)
from pine_engine.console.options import (
    AnyModelName,
    AsJson,
    Device,
    Dtype,
    Methods,
    ModelName,
    method_names,
    whole_numbers,
)
from pine_engine.console.threads import with_threads
from pine_engine.debias.permutation import MAX_ORDERS
from pine_engine.debias.run import Debiased, debias_report, debias_rows, plan_debias, run_debias
from pine_engine.engine.engine import Engine
from pine_engine.engine.events import AnswerDone, PrefillDone, RunDone
from pine_engine.engine.orders import OrderCell, OrderRow, orders_to_try, summarize
from pine_engine.errors import InputError, PineError
from pine_engine.invariance.conformance import BadCase, CaseReport, find_cases, try_case
from pine_engine.invariance.orders import compare_orders
from pine_engine.invariance.selftest import plan_checks
from pine_engine.prompts.inputs import read_comparison, read_labelled_comparison, read_rows

BROKEN = 1
"""Exit status when a check did not hold."""

BAD_INPUT = 2

app = typer.Typer(
    help="Does the order of the documents change a language model's answer, why, and what removes it?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


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
    names = method_names(methods)
    comparison = read_comparison(file)
    engine = terminal.load(model, dtype, device, reads_text=True)
    layout = comparison.tokenize(engine)
    with terminal.progress(2 * len(names)) as advance:
        for event in engine.generate(layout, methods=names, max_new_tokens=max_new_tokens):
            if isinstance(event, PrefillDone):
                advance(f"{event.method} has read {layout.num_tokens} tokens")
            elif isinstance(event, AnswerDone):
                advance(f"{event.answer.method} has answered")
            elif isinstance(event, RunDone):
                report = compare_report(engine, event.result)
    terminal.print_report(report, as_json, report["results"])


@app.command()
def verify(
    data: Annotated[Path | None, typer.Argument(help="JSONL, one example a line.")] = None,
    self_test: Annotated[
        bool,
        typer.Option("--self-test", help="Check what exactness rests on, on this machine; needs no data."),
    ] = False,
    threads: Annotated[
        str | None,
        typer.Option(help="With --self-test: numbers of threads to check with, separated by commas."),
    ] = None,
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
    if threads is not None and not self_test:
        raise InputError("--threads belong to the self-test; give --self-test, or set OMP_NUM_THREADS")
    if data is None:
        counts = _thread_counts(threads)
        _self_test(terminal.load(model, dtype, device), counts, shuffles, seed, as_json)
        return
    names = method_names(methods)
    rows = read_rows(data, limit)
    engine = terminal.load(model, dtype, device, reads_text=True)
    layouts = [row.comparison().tokenize(engine) for row in rows]
    for layout in layouts:
        engine.check_length(layout, new_tokens)
    orders = [orders_to_try(layout.num_documents, shuffles, seed) for layout in layouts]
    summaries = []
    with terminal.progress(sum(map(len, orders))) as advance:
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
    terminal.print_report(
        report, as_json, [{"method": name, **values} for name, values in report["summary"].items()]
    )
    if broken := broken_promises(report):
        terminal.stderr.print(f"the order of the documents changed the output of: {', '.join(broken)}")
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
    engine = terminal.load(model, dtype, device, reads_text=True)
    results: list[Debiased] = []
    with terminal.progress(plan.num_prompts) as advance:
        for event in run_debias(engine, plan):
            if isinstance(event, PrefillDone):
                advance(f"{event.method} has read a prompt")
            elif isinstance(event, Debiased):
                results.append(event)
    report = debias_report(engine, plan, list(map(str, files)), results)
    terminal.print_report(report, as_json, debias_rows(report))


def _thread_counts(threads: str | None) -> list[int]:
    """What the self-test is done with; torch's own number where none is given. Raises InputError."""
    if threads is None:
        return [torch.get_num_threads()]
    counts = whole_numbers(threads, "numbers of threads")
    if min(counts) < 1:
        raise InputError(f"{min(counts)} threads cannot compute; give whole numbers from 1 on")
    return counts


def _self_test(engine: Engine, counts: list[int], shuffles: int, seed: int, as_json: bool) -> None:
    """Every check with every number of threads; they are named where there are several."""
    planned = plan_checks(engine, shuffles=shuffles, seed=seed)
    checks = []
    with terminal.progress(len(counts) * len(planned)) as advance:
        for count in counts:
            for check in planned:
                with with_threads(count):
                    found = check()
                name = found.name if len(counts) == 1 else f"threads {count}: {found.name}"
                checks.append(dataclasses.replace(found, name=name))
                advance(name)
    report = selftest_report(engine, checks)
    rows = [
        {"": check.verdict, "check": check.name, "found": check.found, "meaning": check.meaning}
        for check in checks
    ]
    terminal.print_report(report, as_json, rows)
    if not report["passed"]:
        failed = [check.name for check in checks if check.is_promised and not check.holds]
        terminal.stderr.print(f"exactness cannot be promised here: {'; '.join(failed)}", soft_wrap=True)
        raise typer.Exit(BROKEN)


@app.command()
def conformance(
    folder: Annotated[Path, typer.Argument(help="A folder with recorded cases under it.")],
    as_json: AsJson = False,
) -> None:
    """Compare with recorded outputs of the released code; exit 1 beyond the tolerance, 2 for a bad case."""
    cases = find_cases(folder)
    reports: list[CaseReport | BadCase] = []
    with terminal.progress(len(cases)) as advance:
        for case in cases:
            reports.append(try_case(case))
            advance(case.name)
    rows = [{**dataclasses.asdict(report), "conforms": report.conforms} for report in reports]
    conforms = all(report.conforms for report in reports)
    checked = [report for report in reports if isinstance(report, CaseReport)]
    if as_json or checked:
        of_checked = [row for row, report in zip(rows, reports, strict=True) if report in checked]
        terminal.print_report({"cases": rows, "conforms": conforms}, as_json, of_checked)
    for report in reports:
        if isinstance(report, BadCase):
            print(f"pine_engine: {report.problem}", file=sys.stderr)
    if not conforms:
        raise typer.Exit(BAD_INPUT if all(report.conforms for report in checked) else BROKEN)


app.command()(repeat)
app.command()(bench)
app.command()(evaluate)
app.command()(data)
app.command("report")(make_report)
app.command()(paper)
app.command()(train_molecules)
app.command()(molecules)
app.command("methods")(list_methods)
app.command("models")(show_models)
