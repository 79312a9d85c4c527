"""The command line: `python -m pine_engine VERB`. Results go to stdout, everything else to stderr."""

import dataclasses
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from rich.text import Text

from pine_engine.benchmark import Workload, run_benchmark
from pine_engine.conformance import CaseReport, check_case, find_cases
from pine_engine.engine import Engine
from pine_engine.errors import PineError
from pine_engine.events import AnswerDone, PrefillDone, RunDone
from pine_engine.inputs import read_comparison, read_rows
from pine_engine.invariance import OrderCell, OrderRow, compare_orders, orders_to_try, summarize
from pine_engine.methods import get_methods
from pine_engine.report import Json, broken_promises, compare_report, verify_report

BROKEN = 1
"""Exit status when a check did not hold."""

BAD_INPUT = 2

app = typer.Typer(
    help="Does the order of the documents change a language model's answer, why, and what removes it?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
_stderr = Console(stderr=True)
_stdout = Console()

Methods = Annotated[str | None, typer.Option(help="Methods, separated by commas; all by default.")]
ModelName = Annotated[
    str | None,
    typer.Option(
        "--model", envvar="PINE_MODEL", help="Hub id, folder or GGUF file; the embedded model by default."
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
    engine = _load(model, dtype, device)
    layout = comparison.tokenize(engine)
    with _progress(2 * len(names)) as advance:
        for event in engine.generate(layout, methods=names, max_new_tokens=max_new_tokens):
            if isinstance(event, PrefillDone):
                advance(f"{event.method} has read {layout.num_tokens} tokens")
            elif isinstance(event, AnswerDone):
                advance(f"{event.answer.method} has answered")
            elif isinstance(event, RunDone):
                report = compare_report(engine, event.result)
    _print(report, as_json, report["results"])


@app.command()
def verify(
    data: Annotated[Path, typer.Argument(help="JSONL, one example a line.")],
    limit: Annotated[int | None, typer.Option(help="Rows to read.", min=1)] = None,
    shuffles: Annotated[int, typer.Option(help="Other orders of each row's documents.", min=1)] = 5,
    methods: Methods = None,
    new_tokens: Annotated[int, typer.Option(help="Tokens decoded in every order.", min=1)] = 16,
    seed: Annotated[int, typer.Option(help="Of the shuffles.")] = 0,
    model: ModelName = None,
    dtype: Dtype = "float32",
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Shuffle the documents of each row and compare all logits; exit 1 if a promise was broken."""
    names = _names(methods)
    rows = read_rows(data, limit)
    engine = _load(model, dtype, device)
    layouts = [row.comparison().tokenize(engine) for row in rows]
    for layout in layouts:
        engine.check_length(layout, new_tokens)
    orders = [orders_to_try(layout.num_documents, shuffles, seed) for layout in layouts]
    summaries = []
    with _progress(sum(map(len, orders))) as advance:
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
    _print(report, as_json, [{"method": name, **values} for name, values in report["summary"].items()])
    if broken := broken_promises(report):
        _stderr.print(f"the order of the documents changed the output of: {', '.join(broken)}")
        raise typer.Exit(BROKEN)


@app.command()
def conformance(
    folder: Annotated[Path, typer.Argument(help="A folder with recorded cases under it.")],
    as_json: AsJson = False,
) -> None:
    """Compare with recorded outputs of the released code; exit 1 beyond the tolerance."""
    cases = find_cases(folder)
    reports: list[CaseReport] = []
    with _progress(len(cases)) as advance:
        for case in cases:
            reports.append(check_case(case))
            advance(case.name)
    rows = [{**dataclasses.asdict(report), "conforms": report.conforms} for report in reports]
    conforms = all(report.conforms for report in reports)
    _print({"cases": rows, "conforms": conforms}, as_json, rows)
    if not conforms:
        raise typer.Exit(BROKEN)


@app.command()
def bench(
    documents: Annotated[int, typer.Option(help="Number of documents.", min=1)] = 2,
    document_tokens: Annotated[int, typer.Option(help="Length of each document in tokens.", min=1)] = 200,
    new_tokens: Annotated[int, typer.Option(help="Tokens decoded.", min=2)] = 32,
    methods: Methods = None,
    repeats: Annotated[int, typer.Option(help="Counted rounds.", min=1)] = 3,
    model: ModelName = None,
    dtype: Dtype = "float32",
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Time every method against the stock model, in turns on the same tokens."""
    names = _names(methods)
    work = Workload(model, dtype, device, documents, document_tokens, new_tokens)
    with _progress((repeats + 1) * (len(names) + 2) + len(names) + 1) as advance:
        report = run_benchmark(work, names, repeats, advance)
    rows = [{"method": "stock", **report["stock"]}]
    rows += [{"method": name, **values} for name, values in report["methods"].items()]
    _print(report, as_json, rows)


def _names(methods: str | None) -> list[str]:
    """Names of the methods asked for; checked before anything heavy is loaded."""
    chosen = None if methods is None else [name.strip() for name in methods.split(",") if name.strip()]
    return [method.name for method in get_methods(chosen)]


def _load(model: str | None, dtype: str, device: str) -> Engine:
    with _stderr.status("loading the model"):
        return Engine.load(model, dtype=dtype, device=device)


@contextmanager
def _progress(total: int) -> Iterator[Callable[[str], None]]:
    """A progress bar on a terminal; what it yields moves it on by one and shows a few words."""
    columns = (
        SpinnerColumn(),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    # Elsewhere it would leave an empty line beside the one that says what is wrong.
    hidden = not _stderr.is_terminal
    with Progress(*columns, console=_stderr, transient=True, disable=hidden) as progress:
        task = progress.add_task("", total=total)
        yield lambda words: progress.update(task, advance=1, description=words)


def _print(report: Json, as_json: bool, rows: list[dict[str, Any]]) -> None:
    if as_json:
        print(json.dumps(report))
        return
    columns = list(dict.fromkeys(name for row in rows for name in row))
    table = Table(*columns)
    for row in rows:
        table.add_row(*(Text(_cell(row.get(name))) for name in columns))
    _stdout.print(table)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)
