"""The tables of methods and wrappers for readers: rows for the command line, Markdown for docs/methods.md."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pine_engine.debias.table import DEBIASERS
from pine_engine.errors import InputError
from pine_engine.methods.table import METHODS, KeyWeighting, MaskKind, PositionKind

SEES: dict[MaskKind, str] = {"causal": "earlier ones", "none": "none", "bidirectional": "all"}
"""Which other documents a document sees."""

POSITIONS: dict[PositionKind, str] = {
    "input": "as in the input",
    "own_last": "input order, own last",
    "own_at_end": "as in the input, own at the end",
    "shared": "all start together",
    "shared_right": "all start together, for the suffix end together",
    "importance": "important ones closest",
    "importance_reversed": "important ones farthest",
}
"""Where documents stand as seen from a query."""

WEIGHTS: dict[KeyWeighting, str] = {
    "nothing": "1",
    "documents": "1/k for documents",
    "documents_and_prefix": "1/k for documents and prefix",
}
"""What weighs how much for the suffix."""

BEGIN = "<!-- methods: written by `python -m pine_engine methods --into docs/methods.md` -->"
END = "<!-- end of methods -->"


def method_rows() -> list[dict[str, Any]]:
    """Every method as the table has it, in words."""
    return [
        {
            "name": method.name,
            "label": method.label,
            "sees": SEES[method.mask],
            "positions": POSITIONS[method.positions],
            "weight": WEIGHTS[method.key_weighting],
            "invariance": method.invariance,
            "cost": method.cost,
            "source": method.source,
            "description": method.description,
        }
        for method in METHODS.values()
    ]


def wrapper_rows() -> list[dict[str, Any]]:
    """Every wrapper as the table has it."""
    return [
        {
            field: getattr(wrapper, field)
            for field in ("name", "label", "invariance", "cost", "source", "description")
        }
        for wrapper in DEBIASERS.values()
    ]


def markdown() -> str:
    """Both tables in Markdown."""
    columns = {
        "method": "label",
        "name": "name",
        "what it does": "description",
        "order-invariant": "invariance",
    }
    columns |= {"cost": "cost", "source": "source"}
    methods = _markdown_table(columns, method_rows())
    wrappers = _markdown_table({"wrapper": "label"} | dict(list(columns.items())[1:]), wrapper_rows())
    return f"{methods}\n\nAround any of them:\n\n{wrappers}\n"


def write_into(path: Path) -> None:
    """Puts the tables between the two markers in a file. Raises InputError if they are not there."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}; give a file that exists") from error
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise InputError(f"{path} has no place for the tables; expected a line {BEGIN} and later one {END}")
    path.write_text(f"{before}{BEGIN}\n\n{markdown()}\n{END}{after}", encoding="utf-8")


def _markdown_table(columns: dict[str, str], rows: Sequence[dict[str, Any]]) -> str:
    lines = [list(columns), ["---"] * len(columns)]
    lines += [[_code(key, row[key]) for key in columns.values()] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _code(key: str, value: str) -> str:
    return f"`{value}`" if key == "name" else value
