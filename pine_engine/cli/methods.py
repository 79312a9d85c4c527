"""Subcommands `methods`, `models` and `download-data`: what is available, and downloads."""

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from pine_engine.cli import output
from pine_engine.cli.options import Limit, OutputDir
from pine_engine.cli.output import CommandResult
from pine_engine.debias.table import DEBIASERS, NAMING, Wrapper
from pine_engine.errors import InputError
from pine_engine.methods.table import METHODS, KeyWeighting, MaskKind, Method, PositionKind
from pine_engine.models import listing
from pine_engine.prompts.row_files import read_text

VISIBLE_DOCUMENTS: dict[MaskKind, str] = {
    "causal": "earlier ones",
    "none": "none",
    "alone": "none, read alone",
    "bidirectional": "all",
}
"""Other documents that a document attends to."""

POSITIONS: dict[PositionKind, str] = {
    "input": "as in the input",
    "own_last": "input order, own last",
    "own_at_end": "as in the input, own at the end",
    "shared": "all start together",
    "shared_right": "all start together, for the suffix end together",
    "importance": "important ones closest",
    "importance_reversed": "important ones farthest",
    "rotated": "by token ids, own closest",
    "equilibrium": "all start together, stretched to end together",
    "none": "all tokens at 0",
}
"""Positions of the documents relative to a query."""

WEIGHTS: dict[KeyWeighting, str] = {
    "nothing": "1",
    "documents": "1/k for documents",
    "documents_and_prefix": "1/k for documents and prefix",
    "adaptive": "documents together, by temperature and scale",
    "calibrated": "by attention beyond that of a dummy",
    "saliency": "the likely documents with the question, no others",
}
"""Factor of the attention weights of the suffix."""

TITLES = {
    **{"name": "name", "description": "what it does", "sees": "other documents visible"},
    **{"positions": "positions", "weight": "weight for the suffix", "invariance": "order-invariant"},
    **{"requires": "needs", "cost": "cost", "source": "source"},
}
"""Titles of the columns by JSON key."""

BEGIN = "<!-- {name}: written by `python -m pine_engine {command} --into docs/{name}.md` -->"
END = "<!-- end of {name} -->"

FITTING = {"placement": "all", "passes": "those that need passes", "refused": "none"}
"""Methods that fit a model type."""


def methods(markdown: bool = False, into: Path | None = None) -> CommandResult:
    """List every method and wrapper: description, order invariance, cost and source.

    Args:
        markdown: Print the tables of docs/methods.md.
        into: Write the tables into this file, between its markers.
    """
    if into is not None:
        write_into(into, "methods", "methods", markdown_tables())
        return CommandResult({}, [])
    if markdown:
        print(markdown_tables(), end="")
        return CommandResult({}, [])
    method_rows, wrapper_rows = _method_rows(), list(map(_row, DEBIASERS.values()))
    rows = [{title: row.get(key) for key, title in TITLES.items()} for row in [*method_rows, *wrapper_rows]]
    return CommandResult({"methods": method_rows, "wrappers": wrapper_rows}, rows, caption=NAMING)


def models(types: bool = False, into: Path | None = None) -> CommandResult:
    """List the models on this machine: which can be loaded, and why others cannot.

    Args:
        types: List the causal model types of transformers instead, and the methods that fit each.
        into: With --types: write the table into this file, between its markers.
    """
    if into is not None and not types:
        raise InputError("--into belongs to --types; give both")
    if into is not None:
        write_into(into, "models", "models --types", markdown_types())
        return CommandResult({}, [])
    if types:
        rows = [dataclasses.asdict(each) for each in listing.list_types()]
        return CommandResult({"types": rows}, rows)
    rows = [dataclasses.asdict(model) for model in listing.list_models()]
    return CommandResult({"models": rows}, rows)


def markdown_tables() -> str:
    """Return both tables in Markdown."""
    wrappers = _markdown_table("wrapper", list(map(_row, DEBIASERS.values())))
    return f"{_markdown_table('method', _method_rows())}\n\nAround any of them:\n\n{wrappers}\n"


def markdown_types() -> str:
    """Return the table of model types in Markdown, one row for each reason."""
    by_reason: dict[tuple[str, str], list[str]] = {}
    for each in listing.list_types():
        by_reason.setdefault((FITTING[each.fits], each.reason), []).append(f"`{each.name}`")
    places = list(FITTING.values())
    lines = [("methods that fit", "reason", "model types"), ("---",) * 3]
    for (fits, reason), names in sorted(by_reason.items(), key=lambda row: places.index(row[0][0])):
        lines.append((fits, reason or "-", ", ".join(names)))
    return _markdown(lines) + "\n"


def write_into(path: Path, name: str, command: str, tables: str) -> None:
    """Write tables between the markers of a file; raise InputError for a file without them."""
    first, last = BEGIN.format(name=name, command=command), END.format(name=name)
    before, begin, rest = read_text(path).partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise InputError(f"{path} has no place for the tables: expected a line {first} and later {last}")
    path.write_text(f"{before}{first}\n\n{tables}\n{last}{after}", encoding="utf-8")


def _method_rows() -> list[dict[str, Any]]:
    return [
        _row(
            method,
            sees=VISIBLE_DOCUMENTS[method.mask],
            positions=POSITIONS[method.positions],
            weight=WEIGHTS[method.key_weighting],
            requires=method.requires,
        )
        for method in METHODS.values()
    ]


def _row(described: Method | Wrapper, **looks: str) -> dict[str, Any]:
    names = ("invariance", "cost", "source", "description")
    facts = {name: getattr(described, name) for name in names}
    return {"name": described.name, "label": described.label} | looks | facts


def _markdown_table(kind: str, rows: Sequence[dict[str, Any]]) -> str:
    keys = [key for key in ("description", "invariance", "requires", "cost", "source") if key in rows[0]]
    lines = [(kind, "name", *(TITLES[key] for key in keys)), ("---",) * (len(keys) + 2)]
    lines += [(row["label"], f"`{row['name']}`", *(row[key] for key in keys)) for row in rows]
    return _markdown(lines)


def _markdown(lines: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


# Datasets


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
    from pine_engine.data import registry  # imports numpy

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
        digests = map(file_sha256, sorted(path.rglob("*.arrow")))
        return hashlib.sha256("".join(digests).encode()).hexdigest()
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
