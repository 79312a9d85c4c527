"""Subcommands `verify`, order invariance on examples or the self-test, and `reproduce`, of certificates."""

import dataclasses
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import pine_engine as pine
from pine_engine.cli import output
from pine_engine.cli.endpoint import EndpointOptions, send
from pine_engine.cli.options import (
    Limit,
    Methods,
    ModelOptions,
    Positive,
    TemplateKwargs,
    method_names,
    parse_numbers,
)
from pine_engine.cli.output import CommandResult
from pine_engine.errors import InputError
from pine_engine.invariance.certificate import read_certificate
from pine_engine.methods.table import METHODS, Method
from pine_engine.prompts.chat_templates import parse_kwargs

if TYPE_CHECKING:
    from pine_engine.endpoint.client import Endpoint
    from pine_engine.invariance.reproduction import Reproduction
    from pine_engine.prompts.examples import Example

DATA_ORDERS, SELF_TEST_ORDERS = 5, 2
"""Default numbers of orders of an example and of a prompt of the self-test, besides its own."""

STATISTICS = ("orders", "num_distinct_answers", "max_abs_logit_diff", "bitwise_identical")


def verify(
    data: Annotated[Path | None, typer.Argument()] = None,
    self_test: bool = False,
    threads: str | None = None,
    limit: Limit = None,
    num_orders: Annotated[int | None, typer.Option(min=1)] = None,
    methods: Methods = None,
    max_new_tokens: Positive = 16,
    seed: int = 0,
    chat_template_kwargs: TemplateKwargs = None,
    model: ModelOptions = ModelOptions(),
    server: EndpointOptions = EndpointOptions(),
) -> CommandResult:
    """Compare all logits across document orders; exit 1 if an order-invariant method changes.

    On an endpoint, the generated answers are compared.

    Args:
        data: File or folder of examples as in evaluate, or - for JSONL on stdin.
        self_test: Test this machine and model instead. Needs no data.
        threads: With --self-test: numbers of threads to test, separated by commas.
        limit: Maximum number of examples. Default: all.
        num_orders: Number of orders of each example, besides its own. Default: 5; 2 of the self-test.
        methods: Names of methods.
        max_new_tokens: Number of tokens generated in each order.
        seed: Seed of the orders.
        chat_template_kwargs: Arguments of the chat template, as JSON.
        model: Model to test.
        server: Server that computes its answers.
    """
    kwargs = parse_kwargs(chat_template_kwargs)
    endpoint = server.open(model, kwargs)
    if self_test == (data is not None):
        raise InputError("verify needs either a file of data or --self-test; give one of them")
    if threads is not None and not self_test:
        raise InputError("--threads belongs to the self-test; give --self-test, or set OMP_NUM_THREADS")
    if endpoint and self_test:
        raise InputError("--self-test needs a loaded model; leave --endpoint out, or give data")
    if data is None:
        thread_counts = None if threads is None else parse_numbers(threads, "--threads")
        return _self_test(model, thread_counts, num_orders or SELF_TEST_ORDERS, seed)
    selected = method_names(methods)

    from pine_engine.prompts.examples import read_examples  # imports numpy

    examples = read_examples(data, limit)
    if endpoint:
        return _verify_on_endpoint(
            endpoint,
            examples,
            endpoint.select_methods(selected),
            num_orders or DATA_ORDERS,
            seed,
            max_new_tokens,
        )
    engine = model.load(needs_tokenizer=True)
    names = [method.name for method in engine.select_methods(selected)]
    layouts = [example.comparison().with_kwargs(kwargs).tokenize(engine) for example in examples]
    for layout in layouts:
        engine.check_length(layout, max_new_tokens)
    orders = [pine.sample_orders(layout.num_documents, num_orders or DATA_ORDERS, seed) for layout in layouts]
    entries: list[dict[str, Any]] = []
    with output.progress(sum(map(len, orders))) as advance:
        options: dict[str, Any] = {"max_new_tokens": max_new_tokens, "stop_at_eos": False}
        for example, layout, example_orders in zip(examples, layouts, orders, strict=True):
            cells: list[dict[str, pine.OrderComparison]] = []
            for event in pine.compare_orders(engine, layout, methods=names, orders=example_orders, **options):
                if isinstance(event, pine.OrderResult):
                    cells.append(event.comparisons)
                    advance(example.id)
                elif text := output.event_text(event):
                    advance(f"{example.id}: {text}", 0)
            for method, stats in pine.summarize_orders(cells).items():
                values = {field: getattr(stats, field) for field in STATISTICS}
                entries.append({"id": example.id, "method": method, **values})
    return _verified(output.report_header(engine), names, entries, _logits_total)


def _verify_on_endpoint(
    endpoint: "Endpoint",
    examples: Sequence["Example"],
    methods: Sequence[Method],
    num_orders: int,
    seed: int,
    max_new_tokens: int,
) -> CommandResult:
    """Compare the answers of a server across document orders; the first request of an example is repeated."""
    from pine_engine.endpoint.requests import text_requests

    planned = []
    for example in examples:
        layout = example.comparison().tokenize(endpoint)
        orders = pine.sample_orders(layout.num_documents, num_orders, seed)
        planned.append((example.id, text_requests(layout, methods, max_new_tokens, orders)))
    sent = send(endpoint, [request for _, each in planned for request in each])
    entries = []
    for (name, each), method in product(planned, methods):
        found = [sent.replies[request] for request in each if request.method == method]
        texts = [reply.found.text for reply in found if not reply.error]
        counts = {"orders": len(texts), "num_distinct_answers": len(set(texts))}
        entries.append({"id": name, "method": method.name, **counts, "refused": len(found) - len(texts)})
    names = [method.name for method in methods]
    result = _verified(output.report_header(endpoint), names, entries, _texts_total)
    return sent.finish(
        result, [f"{name}, {request.method.name}" for name, each in planned for request in each]
    )


def _verified(
    header: dict[str, Any],
    methods: list[str],
    entries: list[dict[str, Any]],
    total_of: Callable[[str, list[dict[str, Any]]], dict[str, Any]],
) -> CommandResult:
    """Return the result of the entries, one per example and method."""
    summary = {name: total_of(name, [one for one in entries if one["method"] == name]) for name in methods}
    report = header | {"rows": entries, "summary": summary}
    rows = [{"method": name, **total} for name, total in summary.items()]
    changed = ", ".join(name for name, total in summary.items() if total["invariance_held"] is False)
    notes = [f"the order of the documents changed the output of: {changed}"] if changed else []
    return CommandResult(report, rows, notes, output.FAILED if changed else 0)


def _texts_total(method: str, entries: list[dict[str, Any]]) -> dict[str, Any]:
    """Return one method over all examples, by its texts."""
    refused = sum(entry["refused"] for entry in entries)
    has_changed = any(entry["num_distinct_answers"] > 1 for entry in entries)
    is_equal = False if has_changed else None if refused else True
    return _total(method, entries, is_equal, {"refused": refused} if refused else {})


def _logits_total(method: str, entries: list[dict[str, Any]]) -> dict[str, Any]:
    """Return one method over all examples, by its logits."""
    bitwise_identical = all(entry["bitwise_identical"] for entry in entries)
    # NaN counts as the largest.
    largest = max(
        (entry["max_abs_logit_diff"] for entry in entries), key=lambda diff: (math.isnan(diff), diff)
    )
    logits = {"max_abs_logit_diff": largest, "bitwise_identical": bitwise_identical}
    return _total(method, entries, bitwise_identical, logits)


def _total(
    method: str,
    entries: list[dict[str, Any]],
    is_equal: bool | None,
    others: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the counts of one method.

    invariance_held is None if the method is not order-invariant, or if refused orders leave it open.
    """
    return {
        "rows": len(entries),
        "orders": sum(entry["orders"] for entry in entries),
        "rows_with_one_text": sum(
            entry["num_distinct_answers"] == 1 and not entry.get("refused") for entry in entries
        ),
        **(others or {}),
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
    certified = read_certificate(file)

    from pine_engine.invariance import reproduction
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
