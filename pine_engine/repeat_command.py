"""The verb `repeat`: computes a certificate's comparison again, and says whether the same comes out."""

from pathlib import Path
from typing import Annotated, Any

import typer

from pine_engine import terminal
from pine_engine.certificate import (
    Certificate,
    Repeat,
    certify,
    compare_certificates,
    logits_sha256,
    read_certificate,
)
from pine_engine.engine import Engine
from pine_engine.invariance import OrderCell, OrderRow, compare_orders
from pine_engine.options import AsJson

DIFFERENT = 1
"""Exit status when something else came out."""


def repeat(
    file: Annotated[Path, typer.Argument(help="A certificate, saved on the page after a shuffle.")],
    model: Annotated[
        str | None, typer.Option(help="In place of the model that it names: your copy of a local one.")
    ] = None,
    dtype: Annotated[str | None, typer.Option(help="In place of the dtype that it names.")] = None,
    device: Annotated[str | None, typer.Option(help="In place of the device that it names.")] = None,
    as_json: AsJson = False,
) -> None:
    """Repeat the comparison of a certificate; exit 1 if an answer or what its order changes is another."""
    certified = read_certificate(file)
    engine = terminal.load(
        model or certified.address,
        dtype or certified.platform.dtype,
        device or certified.platform.device,
        reads_text=True,
    )
    compared = compare_certificates(certified, compute_again(engine, certified))
    terminal.print_report(_report(certified, compared), as_json, _rows(compared, len(certified.orders)))
    _say(compared)
    if not compared.holds:
        raise typer.Exit(DIFFERENT)


def compute_again(engine: Engine, certified: Certificate) -> Certificate:
    """The certificate of the same comparison, computed now."""
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


def _report(certified: Certificate, compared: Repeat) -> dict[str, Any]:
    return {
        "made": certified.made,
        "model": certified.platform.model,
        "orders": len(certified.orders),
        "elsewhere": list(compared.elsewhere),
        "tolerance": compared.tolerance,
        "methods": [
            {
                "method": method.found.method,
                "found": method.found.model_dump(mode="json"),
                "certified": method.certified.model_dump(mode="json"),
                "same_bits": method.bits,
                "problems": list(method.problems),
            }
            for method in compared.methods
        ],
        "repeated": compared.holds,
    }


def _rows(compared: Repeat, orders: int) -> list[dict[str, Any]]:
    return [
        {
            "method": method.found.method,
            "same answer": f"{method.found.same_answers} of {orders}",
            "max |Δ logit|": method.found.max_abs_logit_diff,
            "no bit changed": method.found.bitwise_equal,
            "certified bits": method.bits,
            "repeated": f"NO: {'; '.join(method.problems)}" if method.problems else "yes",
        }
        for method in compared.methods
    ]


def _say(compared: Repeat) -> None:
    """What a table cannot say, in sentences on stderr."""
    lines = []
    if compared.elsewhere:
        lines.append(f"another platform: {'; '.join(compared.elsewhere)}")
        lines.append(
            f"so logits are compared by max |Δ logit| alone, which may be {compared.tolerance} off, and a "
            "close decision may give another answer"
        )
    failed = [method.found.method for method in compared.methods if method.problems]
    lines.append(
        f"not what the certificate says: {', '.join(failed)}" if failed else "as the certificate says"
    )
    for line in lines:
        terminal.stderr.print(line, soft_wrap=True, markup=False, highlight=False)
