"""The verb `data`: lists the public sets, or brings one and writes it in our schema."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pine_engine.console import terminal
from pine_engine.console.options import AsJson

if TYPE_CHECKING:
    from pine_engine.data.build import Obtained
    from pine_engine.data.provenance import BuiltSet
    from pine_engine.data.registry import PublicSet


def data(
    name: Annotated[str | None, typer.Argument(help="A set; without one, all are listed.")] = None,
    out: Annotated[Path, typer.Option(help="The folder for NAME.jsonl, downloads and SOURCES.json.")] = Path(
        "data"
    ),
    limit: Annotated[
        int | None, typer.Option(help="Examples to write, from the first on; all if not given.", min=1)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Bring a public data set from its source and write it as JSONL; lists them all without a name."""
    if name is None:
        terminal.print_report({"sets": _listed()}, as_json, _shown())
        return

    from pine_engine.data.build import convert, obtain
    from pine_engine.data.registry import get_set

    chosen = get_set(name)
    with terminal.transfer() as show:
        obtained = obtain(chosen, out, show=show)
    with terminal.progress(min(limit or chosen.records, chosen.records)) as advance:
        built = convert(chosen, obtained, out, limit=limit, advance=advance)
    report = _report(chosen, obtained, built, out)
    terminal.print_report(report, as_json, report["downloads"])
    terminal.say(
        f"{built.examples} examples in {report['file']}; licence: {built.license}; from {built.source}"
    )


def _listed() -> list[dict[str, Any]]:
    from pine_engine.data.registry import NOT_PUBLIC, PUBLIC_SETS

    rows = [
        {
            "set": row.name,
            "task": row.task,
            "records": row.records,
            "bytes": row.size,
            "license": row.license,
            "source": row.source,
        }
        for row in PUBLIC_SETS.values()
    ]
    missing = [
        {"set": name, "task": task, "records": None, "bytes": None, "license": None, "source": None}
        for name, task in NOT_PUBLIC.items()
    ]
    return rows + missing


def _shown() -> list[dict[str, Any]]:
    return [
        {
            "set": row["set"],
            "task": row["task"],
            "records": row["records"],
            "size": None if row["bytes"] is None else f"{row['bytes'] / 1e6:.1f} MB",
            "licence": row["license"],
            "source": row["source"] or "no public copy is known",
        }
        for row in _listed()
    ]


def _report(chosen: "PublicSet", obtained: "list[Obtained]", built: "BuiltSet", out: Path) -> dict[str, Any]:
    return {
        "set": chosen.name,
        "task": chosen.task,
        "examples": built.examples,
        "file": str(out / built.file),
        "sha256": built.sha256,
        "license": built.license,
        "source": built.source,
        "downloads": [
            {
                "file": str(one.path),
                "bytes": one.taken.size,
                "sha256": one.taken.sha256,
                "checked": one.checked,
                "from": one.taken.url,
            }
            for one in obtained
        ],
    }
