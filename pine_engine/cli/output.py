"""Output of the subcommands: results on stdout; progress, notes and errors on stderr; exit statuses."""

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from textwrap import TextWrapper
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from pine_engine.errors import ModelError

if TYPE_CHECKING:
    from pine_engine.engine.engine import Engine

FAILED = 1
"""Exit status: a check failed, a result differs, or records are missing."""

BAD_INPUT = 2
"""Exit status: an argument or a file cannot be used."""

STOPPED = 130
"""Exit status: stopped by Ctrl-C, as in shells."""

SPEED_PERIOD_S = 600.0
"""Seconds over which the progress bar averages its speed; one step may take a minute."""

MIN_WRAPPED_WIDTH = 30
"""Minimum width, in characters, of a table column whose texts continue on further lines."""

stderr = Console(stderr=True)
stdout = Console()


def load(model: str | None, dtype: str, device: str, *, needs_tokenizer: bool = False) -> "Engine":
    """Load the engine with a progress bar, which also shows the conversion of the embedded model.

    Raises:
        ModelError: The model cannot be loaded, or has random weights although a tokenizer is needed.
    """
    from pine_engine.benchmark.random_models import is_synthetic, load_engine

    if needs_tokenizer and is_synthetic(model):
        raise ModelError(
            f"{model} has random weights and no tokenizer, so it cannot process text; use it with `bench` "
            "and `verify --self-test`, and give a real model here"
        )
    with _bar() as bar:
        task = bar.add_task("loading the model", total=None)

        def show(done: float, step: str) -> None:
            bar.update(task, completed=done, total=1.0, description=step)

        engine = load_engine(model, dtype=dtype, device=device, progress=show)
    if engine.invariance_warning:
        print_note(engine.invariance_warning)
    return engine


@contextmanager
def progress(total: int, done: int = 0) -> Iterator[Callable[[str], None]]:
    """Show a progress bar on a terminal. Calling the yielded function advances it and shows a text."""
    with _bar(MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("left,")) as bar:
        task = bar.add_task("", total=total, completed=done)
        yield lambda step: bar.update(task, advance=1, description=step)


def report_header(engine: "Engine") -> dict[str, Any]:
    """Return the first fields of a report: name and dtype of the model."""
    return {"model": engine.model_name, "dtype": engine.dtype}


def print_report(report: dict[str, Any], as_json: bool, rows: list[dict[str, Any]]) -> None:
    """Print the report as one line of JSON, or its table rows on stdout and its dtype on stderr."""
    if as_json:
        print(json.dumps(_without_nan(report), allow_nan=False))
        return
    print_rows(stdout, rows)
    if "dtype" in report:
        print_note(f"dtype: {report['dtype']}")


def print_note(note: str) -> None:
    """Print one line on stderr."""
    stderr.print(note, soft_wrap=True, markup=False, highlight=False)


def print_rows(console: Console, rows: Sequence[dict[str, Any]]) -> None:
    """Print rows as a table, or as one block per row where a table would break words.

    Args:
        console: Console to print on; its width decides.
        rows: Values by JSON key or title. The first one names the row. A missing one is "-" in a table.
    """
    rows = [{_title(key): value for key, value in row.items()} for row in rows]
    titles = list(dict.fromkeys(title for row in rows for title in row))
    cells = [[_cell_text(row.get(title)) for title in titles] for row in rows]
    widths = _column_widths(titles, cells, console.width)
    if widths is None:
        for index, row in enumerate(rows):
            _print_block(console, row, is_first=index == 0)
        return
    table = Table()
    for title, width in zip(titles, widths, strict=True):
        table.add_column(title, width=width)
    for texts in cells:
        table.add_row(*map(Text, texts))  # Text, because brackets in an answer are not markup
    console.print(table)


def _column_widths(titles: Sequence[str], cells: Sequence[Sequence[str]], width: int) -> list[int] | None:
    """Return the columns' widths in a table that breaks no word, or None if there is none.

    Only the widest column has cells of several lines. Titles have several lines where needed.
    """
    widths = [
        max((_width(row[column].split("\n")) for row in cells), default=0) for column in range(len(titles))
    ]
    available = width - 3 * len(titles) - 1  # borders, and a space on both sides of each cell
    for title_parts in ([[title] for title in titles], [title.split() for title in titles]):
        full_widths = [max(pair) for pair in zip(widths, map(_width, title_parts), strict=True)]
        if sum(full_widths) <= available:
            return full_widths
    widest = full_widths.index(max(full_widths))
    full_widths[widest] += available - sum(full_widths)
    words = [word for text in (titles[widest], *(row[widest] for row in cells)) for word in text.split()]
    return full_widths if full_widths[widest] >= max(MIN_WRAPPED_WIDTH, _width(words)) else None


def _print_block(console: Console, row: dict[str, Any], *, is_first: bool) -> None:
    """Print the first value as a title, and the others below as names and wrapped values."""
    if not is_first:
        console.print()
    (_, heading), *others = ((title, _cell_text(value)) for title, value in row.items() if value is not None)
    console.print(Text(heading, style="bold"), soft_wrap=True)
    indent = _width([title for title, _ in others]) + 4
    wrapper = TextWrapper(max(console.width - indent, 1), break_long_words=False, break_on_hyphens=False)
    for title, text in others:
        start = f"  {title}".ljust(indent)
        for line in text.split("\n"):
            for part in wrapper.wrap(line) or [""]:
                console.print(Text(start + part), soft_wrap=True)
                start = " " * indent


def _title(key: str) -> str:
    """Return a JSON key as a title: `prefill_s` is "prefill, s"."""
    return re.sub(r"_(s|mb)$", r", \1", key).replace("_", " ")


def _width(texts: Sequence[str]) -> int:
    """Return the width of the widest text on a terminal, in characters."""
    return max(map(cell_len, texts), default=0)


def _cell_text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _without_nan(value: Any) -> Any:
    """Replace NaN and infinity, which JSON does not have, by None."""
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _bar(*columns: ProgressColumn) -> Progress:
    # Disabled away from a terminal, where it would print an empty line before an error.
    return Progress(
        SpinnerColumn(),
        BarColumn(),
        *columns,
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
        speed_estimate_period=SPEED_PERIOD_S,
        console=stderr,
        transient=True,
        disable=not stderr.is_terminal,
    )
