"""The subcommand `reproduce`: compute a certificate again and compare the results."""

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pine_engine.console import terminal
from pine_engine.console.exit_status import FAILED
from pine_engine.console.options import AsJson

if TYPE_CHECKING:
    from pine_engine.invariance.certificate import Certificate
    from pine_engine.invariance.reproduction import Check, Reproduction


def reproduce(
    file: Annotated[Path, typer.Argument(help="Certificate (JSON), saved on the page after a shuffle.")],
    model: Annotated[
        str | None, typer.Option(help="Model instead of the certified one, such as a copy of a local model.")
    ] = None,
    dtype: Annotated[str | None, typer.Option(help="Dtype instead of the certified one.")] = None,
    device: Annotated[str | None, typer.Option(help="Device instead of the certified one.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compute a certificate again; exit 1 if a result differs.

    Comparisons that are not possible on this platform are listed with the reason.
    """
    from pine_engine.invariance.certificate import read_certificate
    from pine_engine.network.thread_tuner import torch_num_threads

    certified = read_certificate(file)
    with torch_num_threads(_num_threads(certified)):
        engine = terminal.load(
            model or certified.model_ref,
            dtype or certified.platform.dtype,
            device or certified.platform.device,
            reads_text=True,
        )

        from pine_engine.invariance.reproduction import compare_certificates, reproduce

        with terminal.progress(len(certified.orders)) as advance:
            found = reproduce(engine, certified, on_order=advance)
    options = {("model", "revision"): model, ("dtype",): dtype, ("device",): device}
    overrides = [field for fields, value in options.items() if value is not None for field in fields]
    compared = compare_certificates(certified, found, overrides=overrides)
    report = _report(certified, found, compared) | {"dtype": engine.dtype}
    terminal.print_report(report, as_json, [_row(entry, report) for entry in report["methods"]])
    for line in _status_lines(compared, report):
        terminal.say(line)
    if not compared.holds:
        raise typer.Exit(FAILED)


def _num_threads(certified: "Certificate") -> int | None:
    """Return the certified number of threads, on which logits may depend, if there are as many cores."""
    threads = certified.platform.threads
    return threads if threads <= (os.cpu_count() or 1) else None


def _report(certified: "Certificate", found: "Certificate", compared: "Reproduction") -> dict[str, Any]:
    unchecked: dict[tuple[str, str], list[str]] = {}
    for check in compared.checks:
        if check.unchecked:
            methods = unchecked.setdefault((check.label, check.unchecked), [])
            methods += [check.method] if check.method else []
    return {
        "made": certified.made,
        "model": certified.platform.model,
        "orders": len(certified.orders),
        "platform_differences": compared.platform_differences,
        "overrides": compared.overrides,
        "tolerance": None if compared.tolerance is None else dataclasses.asdict(compared.tolerance),
        "problems": compared.problems_of(None),
        "checked": _checked(compared.checks_of(None)),
        "methods": [
            {
                "method": result.method,
                "found": result.model_dump(mode="json"),
                "certified": expected.model_dump(mode="json"),
                "logits_identical": _are_logits_identical(compared.checks_of(result.method)),
                "problems": compared.problems_of(result.method),
                "checked": _checked(compared.checks_of(result.method)),
            }
            for result, expected in zip(found.results, certified.results, strict=True)
        ],
        "unchecked": [
            {"what": label, "methods": methods, "why": reason}
            for (label, reason), methods in unchecked.items()
        ],
        "bitwise_reproduced": compared.holds,
    }


def _are_logits_identical(checks: list["Check"]) -> bool | None:
    """Return the result of the last comparison, of logits; None if it was not possible."""
    return None if checks[-1].unchecked else checks[-1].problem is None


def _checked(checks: list["Check"]) -> dict[str, str]:
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


def _status_lines(compared: "Reproduction", report: dict[str, Any]) -> Iterator[str]:
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
    elif report["unchecked"]:
        yield "equal to the certificate, as far as checked"
    else:
        yield "equal to the certificate"
