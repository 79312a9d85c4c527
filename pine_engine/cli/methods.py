"""Subcommand `methods`: tables of methods and wrappers, also as Markdown for docs/methods.md."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pine_engine.cli import output
from pine_engine.cli.options import AsJson
from pine_engine.debias.table import DEBIASERS, NAMING
from pine_engine.errors import InputError
from pine_engine.methods.table import METHODS, KeyWeighting, MaskKind, PositionKind

VISIBLE_DOCUMENTS: dict[MaskKind, str] = {"causal": "earlier ones", "none": "none", "bidirectional": "all"}
"""Other documents that a document attends to."""

POSITIONS: dict[PositionKind, str] = {
    "input": "as in the input",
    "own_last": "input order, own last",
    "own_at_end": "as in the input, own at the end",
    "shared": "all start together",
    "shared_right": "all start together, for the suffix end together",
    "importance": "important ones closest",
    "importance_reversed": "important ones farthest",
}
"""Positions of the documents relative to a query."""

WEIGHTS: dict[KeyWeighting, str] = {
    "nothing": "1",
    "documents": "1/k for documents",
    "documents_and_prefix": "1/k for documents and prefix",
}
"""Factor of the attention weights of the suffix."""

BEGIN = "<!-- methods: written by `python -m pine_engine methods --into docs/methods.md` -->"
END = "<!-- end of methods -->"


def methods(markdown: bool = False, into: Path | None = None, as_json: AsJson = False) -> None:
    """List every method and wrapper: description, order invariance, cost and source.

    Args:
        markdown: Print the tables of docs/methods.md.
        into: Write the tables into this file, between its markers.
        as_json: Print JSON.
    """
    if into is not None:
        write_into(into)
        return
    if markdown:
        print(markdown_tables(), end="")
        return
    method_rows, wrapper_rows = _method_rows(), _wrapper_rows()
    rows = [
        {
            "name": row["name"],
            "what it does": row["description"],
            "documents see": row.get("sees"),
            "positions": row.get("positions"),
            "weight for the suffix": row.get("weight"),
            "order-invariant": row["invariance"],
            "cost": row["cost"],
            "source": row["source"],
        }
        for row in [*method_rows, *wrapper_rows]
    ]
    output.print_report({"methods": method_rows, "wrappers": wrapper_rows}, as_json, rows)
    if not as_json:
        print(NAMING)


def markdown_tables() -> str:
    """Return both tables in Markdown."""
    columns = {"name": "name", "what it does": "description", "order-invariant": "invariance"}
    columns |= {"cost": "cost", "source": "source"}
    method_table = _markdown_table({"method": "label"} | columns, _method_rows())
    wrapper_table = _markdown_table({"wrapper": "label"} | columns, _wrapper_rows())
    return f"{method_table}\n\nAround any of them:\n\n{wrapper_table}\n"


def write_into(path: Path) -> None:
    """Write the tables between the markers of a file.

    Raises:
        InputError: The file cannot be read or has no markers.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}; give a file that exists") from error
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise InputError(f"{path} has no place for the tables: expected a line {BEGIN} and later {END}")
    path.write_text(f"{before}{BEGIN}\n\n{markdown_tables()}\n{END}{after}", encoding="utf-8")


def _method_rows() -> list[dict[str, Any]]:
    return [
        {
            "name": method.name,
            "label": method.label,
            "sees": VISIBLE_DOCUMENTS[method.mask],
            "positions": POSITIONS[method.positions],
            "weight": WEIGHTS[method.key_weighting],
            "invariance": method.invariance,
            "cost": method.cost,
            "source": method.source,
            "description": method.description,
        }
        for method in METHODS.values()
    ]


def _wrapper_rows() -> list[dict[str, Any]]:
    fields = ("name", "label", "invariance", "cost", "source", "description")
    return [{field: getattr(wrapper, field) for field in fields} for wrapper in DEBIASERS.values()]


def _markdown_table(columns: dict[str, str], rows: Sequence[dict[str, Any]]) -> str:
    lines = [list(columns), ["---"] * len(columns)]
    for row in rows:
        lines.append([f"`{row[key]}`" if key == "name" else row[key] for key in columns.values()])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
