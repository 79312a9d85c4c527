"""The subcommand `verify`: order invariance on the rows of a file, or the self-test."""

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
    as_ints,
    method_names,
)
from pine_engine.errors import InputError
from pine_engine.methods.table import METHODS

if TYPE_CHECKING:
    from pine_engine.engine.engine import Engine
    from pine_engine.engine.orders import OrderStats


def verify(
    data: Annotated[Path | None, typer.Argument(help="JSONL file, one example per line.")] = None,
    self_test: Annotated[
        bool, typer.Option("--self-test", help="Test this machine and model. Needs no data.")
    ] = False,
    threads: Annotated[
        str | None,
        typer.Option(help="With --self-test: numbers of threads to test, separated by commas."),
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Maximum number of rows.", min=1)] = None,
    num_orders: Annotated[int, typer.Option(help="Orders of each row besides the first.", min=1)] = 5,
    methods: Methods = None,
    max_new_tokens: Annotated[int, typer.Option(help="Tokens decoded in each order.", min=1)] = 16,
    seed: Annotated[int, typer.Option(help="Seed of the orders.")] = 0,
    model: AnyModelName = None,
    dtype: Dtype = "auto",
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Compare all logits across document orders; exit 1 if an order-invariant method changes."""
    if self_test == (data is not None):
        raise InputError("verify needs one of two things: a file of data, or --self-test; give one of them")
    if threads is not None and not self_test:
        raise InputError("--threads belong to the self-test; give --self-test, or set OMP_NUM_THREADS")
    if data is None:
        counts = _thread_counts(threads)
        _self_test(terminal.load(model, dtype, device), counts, num_orders, seed, as_json)
        return
    names = method_names(methods)

    from pine_engine.prompts.inputs import DataRow, read_rows

    rows = list(read_rows(data, DataRow, limit).values())
    engine = terminal.load(model, dtype, device, reads_text=True)

    from pine_engine.engine.orders import (
        OrderComparison,
        OrderResult,
        compare_orders,
        sample_orders,
        summarize_orders,
    )

    layouts = [row.comparison().tokenize(engine) for row in rows]
    for layout in layouts:
        engine.check_length(layout, max_new_tokens)
    orders = [sample_orders(layout.num_documents, num_orders, seed) for layout in layouts]
    summaries = []
    with terminal.progress(sum(map(len, orders))) as advance:
        for row, layout, row_orders in zip(rows, layouts, orders, strict=True):
            cells: list[dict[str, OrderComparison]] = []
            for event in compare_orders(
                engine,
                layout,
                methods=names,
                orders=row_orders,
                max_new_tokens=max_new_tokens,
                stop_at_eos=False,
            ):
                if isinstance(event, OrderResult):
                    cells.append(event.cells)
                    advance(row.id)
            summaries.append((row.id, summarize_orders(cells)))
    report = _report(engine, summaries)
    terminal.print_report(report, as_json, _table(report))
    if changed := [name for name, total in report["summary"].items() if total["invariance_held"] is False]:
        terminal.say(f"the order of the documents changed the output of: {', '.join(changed)}")
        raise typer.Exit(FAILED)


def _report(engine: "Engine", summaries: Sequence[tuple[str, dict[str, "OrderStats"]]]) -> dict[str, Any]:
    """Return the invariance of each method on each row, and over all rows."""
    rows: list[dict[str, Any]] = [
        {
            "id": row_id,
            "method": method,
            "orders": summary.orders,
            "num_distinct_answers": summary.num_distinct_answers,
            "max_abs_logit_diff": summary.max_abs_logit_diff,
            "bitwise_identical": summary.bitwise_identical,
        }
        for row_id, by_method in summaries
        for method, summary in by_method.items()
    ]
    names = dict.fromkeys(row["method"] for row in rows)
    return {
        "model": engine.model_name,
        "dtype": engine.dtype,
        "rows": rows,
        "summary": {name: _total(name, [row for row in rows if row["method"] == name]) for name in names},
    }


def _total(method: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return one method over all rows; invariance_held is None if it is not order-invariant."""
    bitwise_identical = all(row["bitwise_identical"] for row in rows)
    return {
        "rows": len(rows),
        "orders": sum(row["orders"] for row in rows),
        "rows_with_one_text": sum(row["num_distinct_answers"] == 1 for row in rows),
        "max_abs_logit_diff": max(row["max_abs_logit_diff"] for row in rows),
        "bitwise_identical": bitwise_identical,
        "invariance_held": bitwise_identical if METHODS[method].is_order_invariant else None,
    }


def _table(report: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "method": name,
            "rows": total["rows"],
            "orders": total["orders"],
            "rows with one answer": total["rows_with_one_text"],
            "max |Δ logit|": total["max_abs_logit_diff"],
            "bitwise identical": total["bitwise_identical"],
            "invariance held": "not claimed"
            if total["invariance_held"] is None
            else total["invariance_held"],
        }
        for name, total in report["summary"].items()
    ]


def _thread_counts(threads: str | None) -> Sequence[int | None]:
    """Return the numbers of threads to test; None stands for torch's number."""
    if threads is None:
        return [None]
    counts = as_ints(threads, "numbers of threads")
    if min(counts) < 1:
        raise InputError(f"{min(counts)} threads cannot compute; give whole numbers from 1 on")
    return counts


def _self_test(
    engine: "Engine", counts: Sequence[int | None], shuffles: int, seed: int, as_json: bool
) -> None:
    """Run every check with every number of threads, which the names include if there are several."""
    from pine_engine.invariance.selftest import plan_checks
    from pine_engine.network.thread_tuner import torch_num_threads

    planned = plan_checks(engine, shuffles=shuffles, seed=seed)
    checks = []
    with terminal.progress(len(counts) * len(planned)) as advance:
        for count in counts:
            for run_check in planned:
                with torch_num_threads(count):
                    check = run_check()
                name = check.name if len(counts) == 1 else f"threads {count}: {check.name}"
                checks.append(dataclasses.replace(check, name=name))
                advance(name)
    failed = [check.name for check in checks if not check.holds]
    report = {
        "model": engine.model_name,
        "dtype": engine.dtype,
        "device": engine.device,
        "checks": [dataclasses.asdict(check) for check in checks],
        "passed": not failed,
    }
    rows = [
        {"check": check.name, "verdict": check.verdict, "found": check.found, "meaning": check.meaning}
        for check in checks
    ]
    terminal.print_report(report, as_json, rows)
    if failed:
        terminal.say(f"not invariant: {'; '.join(failed)}. Try another --dtype, or --threads")
        raise typer.Exit(FAILED)
