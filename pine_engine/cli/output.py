"""Output of the subcommands: results on stdout; progress, notes and errors on stderr; exit statuses."""

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from textwrap import TextWrapper
from typing import TYPE_CHECKING, Any, NamedTuple

import typer
from pydantic_core import to_jsonable_python
from rich import progress as bars
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

import pine_engine as pine
from pine_engine.errors import ModelError

if TYPE_CHECKING:  # imports torch
    from pine_engine.endpoint.client import Endpoint

FAILED = 1  # exit status: a check failed, a result differs, or records are missing
BAD_INPUT = 2  # exit status: an argument or a file cannot be used
STOPPED = 130  # exit status: stopped by Ctrl-C, as in shells
SPEED_PERIOD_S = 600.0  # seconds over which the progress bar averages its speed; one step may take a minute

MIN_WRAPPED_WIDTH = 30
"""Minimum width, in characters, of a table column whose texts continue on further lines."""

stderr = Console(stderr=True)
stdout = Console()


def load(model: str | None, dtype: str, device: str, *, needs_tokenizer: bool = False) -> "pine.Engine":
    """Load the engine with a progress bar, which also shows the conversion of the embedded model."""
    from pine_engine.benchmark.shapes import is_synthetic, load_engine

    if needs_tokenizer and is_synthetic(model):
        raise ModelError(f"{model} has no tokenizer; use it with `bench` and `verify --self-test` only")
    with _bar() as bar:
        task = bar.add_task("loading the model", total=None)

        def show(done: float, step: str) -> None:
            bar.update(task, completed=done, total=1.0, description=step)

        engine = load_engine(model, dtype=dtype, device=device, progress=show)
    if engine.invariance_warning:
        print_note(engine.invariance_warning)
    return engine


@contextmanager
def progress(total: int, done: int = 0) -> Iterator[Callable[..., None]]:
    """Show a progress bar on a terminal. The yielded function shows a text and advances by one or `steps`."""
    with _bar(bars.MofNCompleteColumn(), bars.TimeRemainingColumn(), bars.TextColumn("left,")) as bar:
        task = bar.add_task("", total=total, completed=done)
        yield lambda step, steps=1: bar.update(task, advance=steps, description=step)


def event_text(event: object) -> str:
    """Return the progress within a step: the layer of a prefill, or the token of an answer."""
    if isinstance(event, pine.PrefillProgress):
        return f"{event.method}: prefill, {event.place}"
    return f"{event.method}: token {event.step + 1}" if isinstance(event, pine.TokenGenerated) else ""


class CommandResult(NamedTuple):
    """Result of a subcommand: JSON, rows and caption of the table, notes for stderr, and exit status."""

    report: dict[str, Any]
    rows: list[dict[str, Any]]
    notes: Sequence[str] = ()
    status: int = 0
    caption: str = ""


def report_header(engine: "pine.Engine | Endpoint") -> dict[str, Any]:
    """Return the first fields of a report: name and dtype of the model."""
    return {"model": engine.model_name, "dtype": engine.dtype}


def print_result(result: CommandResult, *, as_json: bool) -> None:
    """Print the report as one line of JSON or as a table, then the notes on stderr; exit with the status."""
    if as_json and result.report:
        print(json.dumps(to_jsonable_python(result.report, inf_nan_mode="null")))
    elif result.rows:
        print_rows(stdout, result.rows)
        if "dtype" in result.report:
            print_note(f"model: {result.report['model']}, dtype: {result.report['dtype']}")
        if result.caption:
            print_note(result.caption)
    for note in result.notes:
        print_note(note)
    if result.status:
        raise typer.Exit(result.status)


def unfinished_note(unfinished: int, total: int) -> str:
    """Return the note on answers whose tokens end inside their thinking part, or before a verdict."""
    advice = "raise --max-new-tokens, or turn thinking off with --chat-template-kwargs if the model allows it"
    return f"{unfinished} of {total} texts end before the answer: {advice}"


def print_note(note: str) -> None:
    """Print one line on stderr."""
    stderr.print(note, soft_wrap=True, markup=False, highlight=False)


def print_rows(console: Console, rows: Sequence[dict[str, Any]]) -> None:
    """Print rows as a table, or as one block per row where a table would break words.

    The first value names a row. In a narrow table, titles and the widest column have several lines.
    """
    # The title of the JSON key `prefill_s` is "prefill, s".
    rows = [
        {re.sub(r"_(s|mb)$", r", \1", key).replace("_", " "): value for key, value in row.items()}
        for row in rows
    ]
    titles = list(dict.fromkeys(title for row in rows for title in row))
    cells = [[_cell_text(row.get(title)) for title in titles] for row in rows]
    widths = [_width("\n".join(column)) for column in zip(*cells, strict=True)]
    unlimited = console.options.update(max_width=sys.maxsize)
    for is_narrow in (False, True):
        table = Table()
        for title, width in zip(titles, widths, strict=True):
            is_wrapped = is_narrow and width == max(widths)
            head = "\n".join(title.split()) if is_narrow else title
            min_width = MIN_WRAPPED_WIDTH if is_wrapped else max(width, _width(head))
            table.add_column(head, no_wrap=not is_wrapped, min_width=min_width)
        for texts in cells:
            table.add_row(*map(Text, texts))  # Text, because brackets in an answer are not markup
        if console.measure(table, options=unlimited).minimum <= console.width:
            console.print(table)
            return
    for index, row in enumerate(rows):
        _print_block(console, row, is_first=index == 0)


def _print_block(console: Console, row: dict[str, Any], *, is_first: bool) -> None:
    """Print the first value as a title, and the others below as names and wrapped values."""
    if not is_first:
        console.print()
    (_, heading), *others = ((title, _cell_text(value)) for title, value in row.items() if value is not None)
    console.print(Text(heading, style="bold"), soft_wrap=True)
    indent = max((_width(title) for title, _ in others), default=0) + 4
    wrapper = TextWrapper(max(console.width - indent, 1), break_long_words=False, break_on_hyphens=False)
    for title, text in others:
        start = f"  {title}".ljust(indent)
        for line in text.split("\n"):
            for part in wrapper.wrap(line) or [""]:
                console.print(Text(start + part), soft_wrap=True)
                start = " " * indent


def _width(text: str) -> int:
    """Return the width of the widest line on a terminal, in characters."""
    return max(map(cell_len, text.splitlines()), default=0)


def _cell_text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _bar(*columns: bars.ProgressColumn) -> bars.Progress:
    # Disabled away from a terminal, where it would print an empty line before an error.
    return bars.Progress(
        bars.SpinnerColumn(),
        bars.BarColumn(),
        *columns,
        bars.TimeElapsedColumn(),
        bars.TextColumn("{task.description}"),
        speed_estimate_period=SPEED_PERIOD_S,
        console=stderr,
        transient=True,
        disable=not stderr.is_terminal,
    )
