"""Records in a notebook: one short line, a table, or a figure."""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from html import escape
from importlib.metadata import entry_points
from typing import Any

from pine_engine.errors import InputError

FIGURES = "pine_engine.figures"
"""Group of entry points: functions that plot records. The engine imports no figures."""

MAX_TEXT = 60  # characters of a text that a line shows
MAX_ITEMS = 8  # items of a list that a line shows; of a list inside a list, half as many


def short_repr(record: Any) -> str:
    """Return the repr of a dataclass in one line: `__repr__ = short_repr`.

    Long texts and lists are cut; arrays and tensors are shown as dtype and shape.
    """
    shown = (f"{each.name}={shorten(getattr(record, each.name))}" for each in fields(record) if each.repr)
    return f"{type(record).__name__}({', '.join(shown)})"


def shorten(value: Any, max_items: int = MAX_ITEMS) -> str:
    """Return a value in one line, see short_repr."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"
    if isinstance(value, str):
        return repr(value if len(value) <= MAX_TEXT else f"{value[: MAX_TEXT - 4]} ...")
    if isinstance(value, tuple | list):
        items = [shorten(item, max(max_items // 2, 1)) for item in value[:max_items]]
        items += [f"... {len(value)} in all"] * (len(value) > max_items)
        opening, closing = "[]" if isinstance(value, list) else "()"
        return f"{opening}{', '.join(items)}{',' * (isinstance(value, tuple) and len(value) == 1)}{closing}"
    if isinstance(value, Mapping):
        pairs = [f"{shorten(key)}: {shorten(item)}" for key, item in list(value.items())[:max_items]]
        pairs += [f"... {len(value)} in all"] * (len(value) > max_items)
        return f"{{{', '.join(pairs)}}}"
    return repr(value)


def plot(name: str, record: Any) -> Any:
    """Return the plotly figure of a record by an installed function of the group FIGURES.

    Raises:
        InputError: If no installed package has the function.
    """
    for function in entry_points(group=FIGURES, name=name):
        return function.load()(record)
    message = f"no function {name}: got none in the entry points {FIGURES}, expected that of the figures."
    raise InputError(f"{message} Install pine-explorer with pip.", field="figures")


def html_table(columns: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
    """Return an HTML table for `_repr_html_` with escaped text; the first cell of a row is its header."""

    def line(cells: Iterable[str]) -> str:
        return f"<tr>{''.join(cells)}</tr>"

    head = line(f'<th scope="col">{escape(str(column))}</th>' for column in columns)
    body = "".join(
        line(
            [
                f'<th scope="row">{escape(str(first))}</th>',
                *(f'<td style="text-align: left">{escape(str(cell))}</td>' for cell in cells),
            ]
        )
        for first, *cells in rows
    )
    return f"<table><thead>{head}</thead><tbody>{body}</tbody></table>"
