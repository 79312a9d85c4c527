"""The verb `verify`: whether any order of the documents changes a bit, on data or in the self-test."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pine_engine.console import terminal
from pine_engine.console.exit_status import FAILED
from pine_engine.console.options import (
    AnyModelName,
    AsJson,
    Device,
    Dtype,
    Methods,
    method_names,
    whole_numbers,
)
from pine_engine.errors import InputError
from pine_engine.network.threads import with_threads

if TYPE_CHECKING:
    from pine_engine.engine.engine import Engine


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
    dtype: Dtype = "auto",
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

    from pine_engine.prompts.inputs import read_rows

    rows = read_rows(data, limit)

    engine = terminal.load(model, dtype, device, reads_text=True)

    from pine_engine.engine.orders import OrderCell, OrderRow, orders_to_try, summarize
    from pine_engine.invariance.orders import compare_orders
    from pine_engine.invariance.reports import broken_promises, verify_report

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
    terminal.print_report(report, as_json, _rows(report))
    if broken := broken_promises(report):
        terminal.say(f"the order of the documents changed the output of: {', '.join(broken)}")
        raise typer.Exit(FAILED)


def _rows(report: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "method": name,
            "rows": summary["rows"],
            "orders": summary["orders"],
            "rows with one answer": summary["rows_with_one_text"],
            "max |Δ logit|": summary["max_abs_logit_diff"],
            "no bit changed": summary["bitwise_equal"],
            "promise kept": "none made" if summary["kept_promise"] is None else summary["kept_promise"],
        }
        for name, summary in report["summary"].items()
    ]


def _thread_counts(threads: str | None) -> Sequence[int | None]:
    """What the self-test is done with; None, torch's own number, where none is given. Raises InputError."""
    if threads is None:
        return [None]
    counts = whole_numbers(threads, "numbers of threads")
    if min(counts) < 1:
        raise InputError(f"{min(counts)} threads cannot compute; give whole numbers from 1 on")
    return counts


def _self_test(
    engine: "Engine", counts: Sequence[int | None], shuffles: int, seed: int, as_json: bool
) -> None:
    """Every check with every number of threads; they are named where there are several."""
    from pine_engine.invariance.reports import selftest_report
    from pine_engine.invariance.selftest import plan_checks

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
        {"check": check.name, "verdict": check.verdict, "found": check.found, "meaning": check.meaning}
        for check in checks
    ]
    terminal.print_report(report, as_json, rows)
    if not report["passed"]:
        failed = [check.name for check in checks if check.is_promised and not check.holds]
        terminal.say(f"exactness cannot be promised here: {'; '.join(failed)}")
        raise typer.Exit(FAILED)
