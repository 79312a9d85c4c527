"""The subcommand `download-data`: list the public sets, or download one and convert it to JSONL."""

import hashlib
from pathlib import Path
from typing import Annotated, Any

import typer

from pine_engine.console import terminal
from pine_engine.console.options import AsJson


def download_data(
    name: Annotated[str | None, typer.Argument(help="Name of a set. Default: list all sets.")] = None,
    output_dir: Annotated[Path, typer.Option(help="Folder for NAME.jsonl and downloads.")] = Path("data"),
    limit: Annotated[
        int | None, typer.Option(help="Maximum number of examples. Default: all.", min=1)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Download a public data set and convert it to JSONL. Without a name, list all sets."""
    if name is None:
        terminal.print_report({"sets": _listed()}, as_json, [_shown(row) for row in _listed()])
        return

    from pine_engine.data.registry import convert, download, get_set

    chosen = get_set(name)
    paths = download(chosen, output_dir)
    with terminal.progress(min(limit or chosen.records, chosen.records)) as advance:
        examples = convert(chosen, paths, output_dir, limit=limit, advance=advance)
    output = output_dir / f"{chosen.name}.jsonl"
    downloads = [
        {
            "file": str(path),
            "bytes": path.stat().st_size,
            "sha256": _sha256(path),
            "checked": "as published" if file.sha256 else "no published checksum",
            "from": file.url,
        }
        for file, path in zip(chosen.files, paths, strict=True)
    ]
    report = {
        "set": chosen.name,
        "task": chosen.task,
        "examples": examples,
        "file": str(output),
        "sha256": _sha256(output),
        "license": chosen.license,
        "source": chosen.source,
        "downloads": downloads,
    }
    terminal.print_report(report, as_json, downloads)
    terminal.say(f"{examples} examples in {output}; license: {chosen.license}; from {chosen.source}")


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


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "set": row["set"],
        "task": row["task"],
        "records": row["records"],
        "size": None if row["bytes"] is None else f"{row['bytes'] / 1e6:.1f} MB",
        "license": row["license"],
        "source": row["source"] or "no public copy is known",
    }


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
