"""The verb `repeat`: computes a certificate's comparison again, and says whether the same comes out."""

import dataclasses
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pine_engine.console import terminal
from pine_engine.console.exit_status import FAILED
from pine_engine.console.options import AsJson
from pine_engine.network.threads import with_threads

if TYPE_CHECKING:
    from pine_engine.engine.engine import Engine
    from pine_engine.invariance.certificate import Certificate
    from pine_engine.invariance.repetition import Check, MethodRepeat, Repeat


def repeat(
    file: Annotated[Path, typer.Argument(help="A certificate, saved on the page after a shuffle.")],
    model: Annotated[
        str | None, typer.Option(help="In place of the model that it names: your copy of a local one.")
    ] = None,
    dtype: Annotated[str | None, typer.Option(help="In place of the dtype that it names.")] = None,
    device: Annotated[str | None, typer.Option(help="In place of the device that it names.")] = None,
    as_json: AsJson = False,
) -> None:
    """Repeat the comparison of a certificate; exit 1 if anything that can be checked here is another.

    What cannot be checked here is said, with the reason.
    """
    from pine_engine.invariance.certificate import read_certificate

    certified = read_certificate(file)
    with with_threads(_threads(certified)):
        engine = terminal.load(
            model or certified.address,
            dtype or certified.platform.dtype,
            device or certified.platform.device,
            reads_text=True,
        )
        found = compute_again(engine, certified)

    from pine_engine.invariance.repetition import compare_certificates

    given = {("model", "revision"): model, ("dtype",): dtype, ("device",): device}
    replaced = [field for fields, value in given.items() if value is not None for field in fields]
    compared = compare_certificates(certified, found, replaced=replaced)
    report = _report(certified, compared) | {"dtype": engine.dtype}
    terminal.print_report(report, as_json, _rows(compared, len(certified.orders)))
    _say(compared)
    if not compared.holds:
        raise typer.Exit(FAILED)


def _threads(certified: "Certificate") -> int | None:
    """As many as the certificate names, where there are so many cores: bits may depend on it."""
    threads = certified.platform.threads
    return threads if threads <= (os.cpu_count() or 1) else None


def compute_again(engine: "Engine", certified: "Certificate") -> "Certificate":
    """The certificate of the same comparison, computed now."""
    from pine_engine.engine.orders import OrderCell, OrderRow
    from pine_engine.invariance.certificate import certify, logits_sha256
    from pine_engine.invariance.orders import compare_orders

    events = compare_orders(
        engine,
        certified.comparison.tokenize(engine),
        methods=certified.methods,
        orders=certified.orders,
        max_new_tokens=certified.max_new_tokens,
        trace=certified.traced,
    )
    cells: list[dict[str, OrderCell]] = []
    hashes: dict[str, str] = {}
    with terminal.progress(len(certified.orders)) as advance:
        for event in events:
            if isinstance(event, OrderRow):
                hashes = hashes or logits_sha256(event.result)
                cells.append(event.cells)
                advance(f"order {len(cells)} of {len(certified.orders)}")
    return certify(
        engine,
        certified.comparison,
        orders=certified.orders,
        cells=cells,
        hashes=hashes,
        seed=certified.seed,
        max_new_tokens=certified.max_new_tokens,
        traced=certified.traced,
    )


def _report(certified: "Certificate", compared: "Repeat") -> dict[str, Any]:
    return {
        "made": certified.made,
        "model": certified.platform.model,
        "orders": len(certified.orders),
        "elsewhere": list(compared.elsewhere),
        "replaced": list(compared.replaced),
        "tolerance": None if compared.tolerance is None else dataclasses.asdict(compared.tolerance),
        "problems": list(compared.problems),
        "checked": _checked(compared.checks),
        "methods": [
            {
                "method": method.found.method,
                "found": method.found.model_dump(mode="json"),
                "certified": method.certified.model_dump(mode="json"),
                "same_bits": method.bits,
                "problems": list(method.problems),
                "checked": _checked(method.checks),
            }
            for method in compared.methods
        ],
        "not_checked": [
            {"what": check.what, "methods": methods, "why": check.unchecked}
            for check, methods in compared.not_checked.items()
        ],
        "repeated": compared.holds,
    }


def _checked(checks: Iterable["Check"]) -> dict[str, str]:
    """How each was checked that could be."""
    return {check.what: check.how for check in checks if check.unchecked is None}


def _rows(compared: "Repeat", orders: int) -> list[dict[str, Any]]:
    return [
        {
            "method": method.found.method,
            "same answer": f"{method.found.same_answers} of {orders}",
            "max |Δ logit|": method.found.max_abs_logit_diff,
            "no bit changed": method.found.bitwise_equal,
            "certified bits": "not checked" if method.bits is None else method.bits,
            "repeated": _verdict(method),
        }
        for method in compared.methods
    ]


def _verdict(method: "MethodRepeat") -> str:
    if method.problems:
        return f"NO: {'; '.join(method.problems)}"
    return "as far as checked" if any(check.unchecked for check in method.checks) else "yes"


def _say(compared: "Repeat") -> None:
    """What a table cannot say, in sentences on stderr."""
    for line in _sentences(compared):
        terminal.say(line)


def _sentences(compared: "Repeat") -> Iterator[str]:
    if compared.elsewhere:
        yield f"another platform: {'; '.join(compared.elsewhere)}"
    if compared.replaced:
        yield f"in place of what the certificate names, as asked for: {'; '.join(compared.replaced)}"
    if compared.tolerance is not None:
        yield (
            f"max |Δ logit| may be {compared.tolerance.logit_diff:g} off here, and a log-probability "
            f"{compared.tolerance.logprob:g} for each token of its answer; a close decision may give another "
            "answer"
        )
    for check, methods in compared.not_checked.items():
        of = f" of {', '.join(methods)}" if methods else ""
        yield f"not checked: {check.what}{of}, since {check.unchecked}"
    if any(check.problem for check in compared.checks if check.what in ("the model", "the revision")):
        yield "install what the certificate names, or give --model to ask for another in its place"
    failed = [method.found.method for method in compared.methods if method.problems]
    if not compared.holds:
        yield f"not what the certificate says: {'; '.join([*compared.problems, *failed])}"
    elif compared.not_checked:
        yield "as far as it can be checked here, nothing differs from the certificate"
    else:
        yield "as the certificate says"
