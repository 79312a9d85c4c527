"""Rows for people: a table where the terminal is wide enough for one, else a block for each row.

No word is broken: a table in which words would not fit into their columns is not made, and in a block a word
that is longer than a line stays in one piece, so that a path or an address can be copied.
"""

from collections.abc import Sequence
from textwrap import wrap
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

NARROWEST = 30
"""Characters that the one column keeps at least whose texts go on in further lines."""

INDENT = 2

GAP = 2
"""Blanks between a name and its value."""


def print_rows(console: Console, rows: Sequence[dict[str, Any]]) -> None:
    """Prints rows, whose keys are the titles; the first one names the row.

    What a row does not have is "-" in a table and left out of its block.
    """
    titles = list(dict.fromkeys(title for row in rows for title in row))
    table = [[_cell(row.get(title)) for title in titles] for row in rows]
    widths = column_widths(titles, table, console.width)
    if widths is None:
        for number, row in enumerate(rows):
            if number:
                console.print()
            _print_block(console, row)
        return
    drawn = Table()
    for title, width in zip(titles, widths, strict=True):
        drawn.add_column(title, width=width)
    for cells in table:
        drawn.add_row(*map(Text, cells))  # Text: brackets in a model's answer are no colours
    console.print(drawn)


def column_widths(titles: Sequence[str], rows: Sequence[Sequence[str]], room: int) -> list[int] | None:
    """Characters for each column of a table of at most `room` of them; None where there is no such table.

    Cells stay in one line but for those of the widest column, and titles where there is room for it.
    """
    cells = [[line for row in rows for line in row[index].split("\n")] for index in range(len(titles))]
    wide = [_longest(column) for column in cells]
    room -= 3 * len(titles) + 1  # lines between columns, and a blank on both sides of each
    for parts in ([[title] for title in titles], [title.split() for title in titles]):
        widths = [max(pair) for pair in zip(wide, map(_longest, parts), strict=True)]
        if sum(widths) <= room:
            return widths
    widest = widths.index(max(widths))
    widths[widest] += room - sum(widths)
    words = [word for text in (titles[widest], *cells[widest]) for word in text.split()]
    return widths if widths[widest] >= max(NARROWEST, _longest(words)) else None


def _print_block(console: Console, row: dict[str, Any]) -> None:
    """The first value as the title, under it the others by name; long ones go on below their start."""
    (title, *others) = ((name, _cell(value)) for name, value in row.items() if value is not None)
    console.print(Text(title[1], style="bold"), soft_wrap=True)
    start = INDENT + _longest([name for name, _ in others]) + GAP
    for name, value in others:
        front = " " * INDENT + name
        for line in _wrapped(value, max(console.width - start, 1)):
            console.print(Text(front.ljust(start) + line), soft_wrap=True)
            front = ""


def _wrapped(text: str, width: int) -> list[str]:
    """Lines of whole words; of the text's own lines each starts a new one."""
    return [
        part
        for line in text.split("\n")
        for part in wrap(line, width, break_long_words=False, break_on_hyphens=False) or [""]
    ]


def _longest(texts: Sequence[str]) -> int:
    """Characters of the widest text, as a terminal shows it."""
    return max(map(cell_len, texts), default=0)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)
