"""Subcommands `verify`, order invariance on examples or the self-test, and `reproduce`, of certificates."""

import dataclasses
import os
from collections.abc import Iterator, Sequence
from itertools import product
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import pine_engine as pine
from pine_engine.cli import output
from pine_engine.cli.endpoint import EndpointOptions
from pine_engine.cli.options import (
    Columns,
    Limit,
    Methods,
    ModelOptions,
    Positive,
    TemplateKwargs,
    method_names,
    parse_numbers,
)
from pine_engine.cli.output import CommandResult
from pine_engine.cli.receive import receive
from pine_engine.errors import InputError
from pine_engine.methods.plan import check_scores
from pine_engine.methods.table import METHODS
from pine_engine.prompts.chat_templates import parse_kwargs
from pine_engine.rows.columns import parse_columns

if TYPE_CHECKING:
    from pine_engine.invariance.reproduction import Reproduction

DATA_ORDERS, SELF_TEST_ORDERS = 5, 2
"""Default numbers of orders of an example and of a prompt of the self-test, besides its own."""


@dataclasses.dataclass(frozen=True)
class VerifyOptions:
    """Options of a comparison of document orders.

    Attributes:
        limit: Maximum number of examples. Default: all.
        columns: Columns of the data, FIELD=COLUMN.
        num_orders: Number of orders of each example, besides its own. Default: 5; 2 of the self-test.
        methods: Names of methods.
        max_new_tokens: Number of tokens generated in each order.
        seed: Seed of the orders.
        chat_template_kwargs: Arguments of the chat template, as JSON.
    """

    limit: Limit = None
    columns: Columns = None
    num_orders: Annotated[int | None, typer.Option(min=1)] = None
    methods: Methods = None
    max_new_tokens: Positive = 16
    seed: int = 0
    chat_template_kwargs: TemplateKwargs = None


def verify(
    data: Annotated[Path | None, typer.Argument()] = None,
    self_test: bool = False,
    threads: str | None = None,
    options: VerifyOptions = VerifyOptions(),
    model: ModelOptions = ModelOptions(),
    server: EndpointOptions = EndpointOptions(),
) -> CommandResult:
    """Compare all logits across document orders; exit 1 if an order-invariant method changes.

    On an endpoint, the generated answers are compared.

    Args:
        data: File or folder of examples as in evaluate, or - for JSONL on stdin.
        self_test: Test this machine and model instead. Needs no data.
        threads: With --self-test: numbers of threads to test, separated by commas.
        options: Examples, methods and orders.
        model: Model to test.
        server: Server that computes its answers.
    """
    if self_test == (data is not None):
        raise InputError("verify needs either a file of data or --self-test; give one of them")
    if threads is not None and not self_test:
        raise InputError("--threads belongs to the self-test; give --self-test, or set OMP_NUM_THREADS")
    if data is None:
        if server != EndpointOptions():
            raise InputError("--self-test needs a loaded model; leave --endpoint out, or give data")
        thread_counts = None if threads is None else parse_numbers(threads, "--threads")
        return _self_test(model, thread_counts, options.num_orders or SELF_TEST_ORDERS, options.seed)
    selected = method_names(options.methods)

    from pine_engine.prompts.examples import read_examples  # imports numpy

    examples = read_examples(data, options.limit, columns=parse_columns(options.columns))
    backend, kwargs = server.open_backend(model, parse_kwargs(options.chat_template_kwargs))
    chosen = backend.select_methods(selected)
    names = [method.name for method in chosen]
    prompts = [
        (example.id, example.comparison().with_kwargs(kwargs).tokenize(backend)) for example in examples
    ]
    for prompt, layout in prompts:
        backend.check_length(layout, options.max_new_tokens)
        check_scores(layout, chosen, prompt)
    orders = [
        pine.sample_orders(layout.num_documents, options.num_orders or DATA_ORDERS, options.seed)
        for _, layout in prompts
    ]
    received = receive(
        backend,
        prompts,
        names,
        orders=orders,
        max_new_tokens=options.max_new_tokens,
        stop_at_eos=backend.misfit("logits") is not None,  # logits behind the end are compared, too
    )
    entries = [
        _entry(name, method, results, len(of_prompt))
        for (name, _), results, of_prompt in zip(prompts, received.orders, orders, strict=True)
        for method in names
        if results or not received.is_stopped
    ]
    summary = {name: _total(name, [one for one in entries if one["method"] == name]) for name in names}
    report = output.report_header(backend) | {"rows": entries, "summary": summary}
    rows = [{"method": name, **total} for name, total in summary.items()]
    changed = ", ".join(name for name, total in summary.items() if total["invariance_held"] is False)
    notes = [f"the order of the documents changed the output of: {changed}"] if changed else []
    if num_single := sum(len(of_prompt) == 1 for of_prompt in orders):
        notes.append(
            f"{num_single} of {len(orders)} rows have one document: no other order is compared there"
        )
    status = output.FAILED if changed else 0
    return received.finish(backend, CommandResult(report, rows, notes, status))


def _entry(name: str, method: str, results: "Sequence[pine.OrderResult]", num_orders: int) -> dict[str, Any]:
    """Return the statistics of one method over the orders of one example; `refused` have no answer."""
    cells = [{method: one.comparisons[method]} for one in results if method in one.comparisons]
    refused = num_orders - len(cells)
    entry: dict[str, Any] = {"id": name, "method": method, "orders": len(cells), "num_distinct_answers": 0}
    if not cells:
        return entry | {"refused": refused}
    stats = pine.summarize_orders(cells)[method]
    entry["num_distinct_answers"] = stats.num_distinct_answers
    if stats.bitwise_identical is None:
        return entry | {"refused": refused}
    entry |= {name: getattr(stats, name) for name in ("max_abs_logit_diff", "bitwise_identical")}
    return entry | ({"refused": refused} if refused else {})


def _total(method: str, entries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return one method over all examples, by its logits, or by its texts where there are no logits.

    invariance_held is None if the method is not order-invariant, or if refused orders leave it open, or if
    no example has another order.
    """
    refused = sum(entry.get("refused", 0) for entry in entries)
    others: dict[str, Any] = {"refused": refused} if refused else {}
    has_changed = any(entry["num_distinct_answers"] > 1 for entry in entries)
    logits = [entry for entry in entries if "bitwise_identical" in entry]
    if logits:
        has_changed = not all(entry["bitwise_identical"] for entry in logits)
        differences = [entry["max_abs_logit_diff"] for entry in logits]
        others["max_abs_logit_diff"] = max(differences, key=lambda one: (isnan(one), one))  # NaN is largest
        others["bitwise_identical"] = not has_changed
    is_open = refused or all(entry["orders"] < 2 for entry in entries)
    is_equal = False if has_changed else None if is_open else True
    return {
        "rows": len(entries),
        "orders": sum(entry["orders"] for entry in entries),
        "rows_with_one_text": sum(
            entry["num_distinct_answers"] == 1 and not entry.get("refused") for entry in entries
        ),
        **others,
        "invariance_held": is_equal if METHODS[method].is_order_invariant else None,
    }


def _self_test(
    model: ModelOptions, thread_counts: list[int] | None, num_orders: int, seed: int
) -> CommandResult:
    """Run every check with every number of threads, or with torch's."""
    engine = model.load()

    from pine_engine.invariance.selftest import plan_checks
    from pine_engine.network.thread_tuner import torch_num_threads

    with output.progress(0) as advance:
        advance("creating test models", 0)
        planned = plan_checks(engine, shuffles=num_orders, seed=seed)
    counts: Sequence[int | None] = thread_counts or [None]
    checks = []
    with output.progress(len(counts) * len(planned)) as advance:
        for count, run_check in product(counts, planned):
            with torch_num_threads(count):
                check = run_check()
            if len(counts) > 1:
                check = dataclasses.replace(check, name=f"threads {count}: {check.name}")
            checks.append(check)
            advance(check.name)
    failed = [check.name for check in checks if not check.holds]
    results = [dataclasses.asdict(check) for check in checks]
    report = output.report_header(engine) | {"device": engine.device, "checks": results, "passed": not failed}
    rows = [
        {"check": check.name, "verdict": check.verdict, "found": check.found, "meaning": check.meaning}
        for check in checks
    ]
    notes = [f"not invariant: {'; '.join(failed)}. Use another --dtype, or --threads."] if failed else []
    return CommandResult(report, rows, notes, output.FAILED if failed else 0)


def reproduce(
    file: Path, model: str | None = None, dtype: str | None = None, device: str | None = None
) -> CommandResult:
    """Compute a certificate again; exit 1 if a result differs.

    Comparisons that are not possible on this platform are listed with the reason.

    Args:
        file: Certificate, a JSON file that the page saves after a shuffle test.
        model: Model to load instead of the certified one, such as a copy of a local model.
        dtype: Dtype to load instead of the certified one.
        device: Device to use instead of the certified one.
    """
    from pine_engine.invariance.certificate import read_certificate  # imports numpy

    certified = read_certificate(file)

    from pine_engine.invariance import reproduction  # imports torch
    from pine_engine.network.thread_tuner import torch_num_threads

    platform = certified.platform
    num_threads = platform.threads  # logits may depend on it
    source = (model or certified.model_ref, dtype or platform.dtype, device or platform.device)
    with torch_num_threads(num_threads if num_threads <= (os.cpu_count() or 1) else None):
        engine = output.load(*source, needs_tokenizer=True)
        with output.progress(len(certified.orders)) as advance:
            repetition = reproduction.reproduce(engine, certified, on_order=advance)
    options = {("model", "revision"): model, ("dtype",): dtype, ("device",): device}
    overrides = [field for fields, value in options.items() if value is not None for field in fields]
    comparison = reproduction.compare_certificates(certified, repetition, overrides=overrides)
    report = comparison.report()
    rows = [_row(entry, report) for entry in report["methods"]]
    return CommandResult(report, rows, list(_notes(comparison)), 0 if comparison.holds else output.FAILED)


def _row(entry: dict[str, Any], report: dict[str, Any]) -> dict[str, Any]:
    is_incomplete = any(entry["method"] in unchecked["methods"] for unchecked in report["unchecked"])
    verdict = "as far as checked" if is_incomplete else "yes"
    return {
        "method": entry["method"],
        "same answer": f"{entry['found']['num_matching_answers']} of {report['orders']}",
        "max |Δ logit|": entry["found"]["max_abs_logit_diff"],
        "bitwise identical": entry["found"]["bitwise_identical"],
        "certified logits": "not checked" if entry["logits_identical"] is None else entry["logits_identical"],
        "reproduced": f"NO: {'; '.join(entry['problems'])}" if entry["problems"] else verdict,
    }


def _notes(compared: "Reproduction") -> Iterator[str]:
    if compared.platform_differences:
        yield f"platform differs: {'; '.join(compared.platform_differences)}"
    if compared.overrides:
        yield f"replaced by options: {'; '.join(compared.overrides)}"
    if tolerance := compared.tolerance:
        yield (
            f"tolerance: {tolerance['logit_diff']:g} for max |Δ logit|, {tolerance['logprob']:g} nats per "
            "token for a log-probability; a near-tie can change the answer"
        )
    unchecked = compared.unchecked()
    for (label, reason), methods in unchecked.items():
        of_methods = f" of {', '.join(methods)}" if methods else ""
        yield f"not checked: {label}{of_methods}: {reason}"
    if any(check.problem for check in compared.checks if check.label in ("the model", "the revision")):
        yield "load the certified model, or give --model to accept another one"
    if compared.holds:
        yield "equal to the certificate" + (", as far as checked" if unchecked else "")
    else:
        failed = dict.fromkeys(check.method for check in compared.checks if check.problem and check.method)
        yield f"differs from the certificate: {'; '.join([*compared.problems_of(None), *failed])}"
