"""Subcommands `methods` and `models`: what is available."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pine_engine.additions import find_addition
from pine_engine.cli.output import CommandResult
from pine_engine.errors import InputError
from pine_engine.methods.table import METHODS, KeyWeighting, MaskKind, PositionKind
from pine_engine.models import listing
from pine_engine.rows.files import read_text

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
    wrappers, naming = find_addition("pine_engine.lab", "wrappers", _no_wrappers)()
    method_rows, wrapper_rows = _method_rows(), list(map(_row, wrappers))
    rows = [{title: row.get(key) for key, title in TITLES.items()} for row in [*method_rows, *wrapper_rows]]
    return CommandResult({"methods": method_rows, "wrappers": wrapper_rows}, rows, caption=naming)


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
    """Return the tables of methods and of wrappers in Markdown."""
    wrappers, _ = find_addition("pine_engine.lab", "wrappers", _no_wrappers)()
    tables = [_markdown_table("method", _method_rows())]
    if wrappers:
        tables += ["Around any of them:", _markdown_table("wrapper", list(map(_row, wrappers)))]
    return "\n\n".join(tables) + "\n"


def _no_wrappers() -> tuple[tuple[Any, ...], str]:
    return (), ""


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


def _row(described: Any, **looks: str) -> dict[str, Any]:
    """Return the columns of a method or of a wrapper."""
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
