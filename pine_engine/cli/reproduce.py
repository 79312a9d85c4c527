"""Subcommand `reproduce`: compute a certificate again and compare the results."""

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from pine_engine.cli import output
from pine_engine.cli.options import AsJson
from pine_engine.invariance.certificate import Certificate, read_certificate

if TYPE_CHECKING:
    from pine_engine.invariance.reproduction import CertificateCheck, Reproduction


def reproduce(
    file: Path,
    model: str | None = None,
    dtype: str | None = None,
    device: str | None = None,
    as_json: AsJson = False,
) -> None:
    """Compute a certificate again; exit 1 if a result differs.

    Comparisons that are not possible on this platform are listed with the reason.

    Args:
        file: Certificate, a JSON file that the page saves after a shuffle test.
        model: Model to load instead of the certified one, such as a copy of a local model.
        dtype: Dtype to load instead of the certified one.
        device: Device to use instead of the certified one.
        as_json: Print JSON.
    """
    certified = read_certificate(file)

    from pine_engine.invariance import reproduction
    from pine_engine.network.thread_tuner import torch_num_threads

    num_threads = certified.platform.threads  # logits may depend on it
    with torch_num_threads(num_threads if num_threads <= (os.cpu_count() or 1) else None):
        engine = output.load(
            model or certified.model_ref,
            dtype or certified.platform.dtype,
            device or certified.platform.device,
            needs_tokenizer=True,
        )
        with output.progress(len(certified.orders)) as advance:
            found = reproduction.reproduce(engine, certified, on_order=advance)
    options = {("model", "revision"): model, ("dtype",): dtype, ("device",): device}
    overrides = [field for fields, value in options.items() if value is not None for field in fields]
    compared = reproduction.compare_certificates(certified, found, overrides=overrides)
    report = _report(certified, found, compared) | {"dtype": engine.dtype}
    output.print_report(report, as_json, [_row(entry, report) for entry in report["methods"]])
    for note in _notes(compared, report):
        output.print_note(note)
    if not compared.holds:
        raise typer.Exit(output.FAILED)


def _report(certified: Certificate, found: Certificate, compared: "Reproduction") -> dict[str, Any]:
    unchecked: dict[tuple[str, str], list[str]] = {}
    for check in compared.checks:
        if check.unchecked:
            names = unchecked.setdefault((check.label, check.unchecked), [])
            names += [check.method] if check.method else []
    methods: list[dict[str, Any]] = []
    for result, expected in zip(found.results, certified.results, strict=True):
        checks = compared.checks_of(result.method)
        logits = checks[-1]
        methods.append(
            {
                "method": result.method,
                "found": result.model_dump(mode="json"),
                "certified": expected.model_dump(mode="json"),
                "logits_identical": None if logits.unchecked else logits.problem is None,
                "problems": compared.problems_of(result.method),
                "checked": _checked(checks),
            }
        )
    return {
        "made": certified.made,
        "model": certified.platform.model,
        "orders": len(certified.orders),
        "platform_differences": compared.platform_differences,
        "overrides": compared.overrides,
        "tolerance": None if compared.tolerance is None else dataclasses.asdict(compared.tolerance),
        "problems": compared.problems_of(None),
        "checked": _checked(compared.checks_of(None)),
        "methods": methods,
        "unchecked": [
            {"what": label, "methods": names, "why": reason} for (label, reason), names in unchecked.items()
        ],
        "bitwise_reproduced": compared.holds,
    }


def _checked(checks: list["CertificateCheck"]) -> dict[str, str]:
    """Return the tolerance of each completed comparison."""
    return {
        check.label: f"within {check.tolerance:g}" if check.tolerance else "exactly"
        for check in checks
        if check.unchecked is None
    }


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


def _notes(compared: "Reproduction", report: dict[str, Any]) -> Iterator[str]:
    if compared.platform_differences:
        yield f"platform differs: {'; '.join(compared.platform_differences)}"
    if compared.overrides:
        yield f"replaced by options: {'; '.join(compared.overrides)}"
    if compared.tolerance is not None:
        yield (
            f"tolerance: {compared.tolerance.logit_diff:g} for max |Δ logit|, {compared.tolerance.logprob:g} "
            "nats per token for a log-probability; a near-tie can change the answer"
        )
    for entry in report["unchecked"]:
        of = f" of {', '.join(entry['methods'])}" if entry["methods"] else ""
        yield f"not checked: {entry['what']}{of}: {entry['why']}"
    if any(check.problem for check in compared.checks if check.label in ("the model", "the revision")):
        yield "load the certified model, or give --model to accept another one"
    failed = [entry["method"] for entry in report["methods"] if entry["problems"]]
    if not compared.holds:
        yield f"differs from the certificate: {'; '.join([*report['problems'], *failed])}"
    else:
        yield "equal to the certificate" + (", as far as checked" if report["unchecked"] else "")
