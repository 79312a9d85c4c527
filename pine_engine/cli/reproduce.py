"""Subcommand `reproduce`: compute a certificate again and compare the results."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pine_engine.cli import output
from pine_engine.cli.output import CommandResult
from pine_engine.invariance.certificate import read_certificate

if TYPE_CHECKING:
    from pine_engine.invariance.reproduction import Reproduction


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
