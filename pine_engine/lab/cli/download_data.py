"""Subcommand `download-data`: public and generated datasets as JSON lines."""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from pine_engine.cli import output
from pine_engine.cli.options import Limit, OutputDir
from pine_engine.cli.output import CommandResult


def download_data(
    name: Annotated[str | None, typer.Argument()] = None,
    output_dir: OutputDir = Path("data"),
    limit: Limit = None,
) -> CommandResult:
    """Download a dataset, or generate facts-N or few-shot-N, as JSONL. Without a name, list all datasets.

    Args:
        name: Name of a dataset. Default: list all datasets.
        output_dir: Folder for NAME.jsonl and downloads.
        limit: Maximum number of examples. Default: all.
    """
    from pine_engine.lab.data import registry  # imports numpy

    if name is None:
        sets = _list_sets(registry.PUBLIC_SETS.values(), registry.NOT_PUBLIC)
        return CommandResult({"sets": sets}, sets)
    public_set = registry.get_set(name)
    paths = registry.download(public_set, output_dir)
    with output.progress(min(limit or public_set.records, public_set.records)) as advance:
        num_examples = registry.convert(public_set, paths, output_dir, limit=limit, advance=advance)
    path = output_dir / f"{public_set.name}.jsonl"
    downloads: list[dict[str, Any]] = []
    for file, download in zip(public_set.files, paths, strict=True):
        facts = {"file": str(download), "bytes": download.stat().st_size, "sha256": file_sha256(download)}
        checked = "as published" if "sha256" in file else "no published checksum"
        downloads.append(facts | {"checked": checked, "from": file["url"]})
    report: dict[str, Any] = {"set": public_set.name, "task": public_set.task, "examples": num_examples}
    report |= {"file": str(path), "sha256": file_sha256(path), "license": public_set.license}
    report |= {"source": public_set.source, "downloads": downloads}
    origin = f"license: {public_set.license}; from {public_set.source}"
    rows = downloads or [{key: report[key] for key in ("set", "examples", "file", "sha256")}]
    return CommandResult(report, rows, [f"{num_examples} examples in {path}; {origin}"])


def _list_sets(public: Iterable[object], not_public: Mapping[str, str]) -> list[dict[str, Any]]:
    fields = {"set": "name", "task": "task", "records": "records", "bytes": "size", "license": "license"}
    fields["source"] = "source"
    rows = [{key: getattr(each, field) for key, field in fields.items()} for each in public]
    unknown = dict.fromkeys(fields)
    return rows + [unknown | {"set": name, "task": task} for name, task in not_public.items()]


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file, or of those of the data files in a folder, in hexadecimal digits."""
    if path.is_dir():
        files = sorted(path.rglob("*.arrow")) or sorted(filter(Path.is_file, path.rglob("*")))
        digests = map(file_sha256, files)
        return hashlib.sha256("".join(digests).encode()).hexdigest()
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
