"""Output of the subcommands: results on stdout; progress, notes and errors on stderr; exit statuses."""

import json
import re
import sys
import time
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
from pine_engine.scheduling.work import format_seconds

if TYPE_CHECKING:  # imports torch
    from pine_engine.backend import Backend

FAILED = 1  # exit status: a check failed, a result differs, or records are missing
BAD_INPUT = 2  # exit status: an argument or a file cannot be used
STOPPED = 130  # exit status: stopped by Ctrl-C, as in shells
SPEED_PERIOD_S = 600.0  # seconds over which the progress bar averages its speed; one step may take a minute

LINE_PERIOD_S = 10.0  # minimum seconds between two lines of progress away from a terminal
LINE_SHARE = 0.05  # of the elapsed time, so that a run of hours has some dozen lines

_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Control characters of ASCII and Latin-1, separators of lines, marks of direction, and surrogates."""

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
        lines = ProgressLines(100)

        def show(done: float, step: str) -> None:
            bar.update(task, completed=done, total=1.0, description=printable(step))
            lines.show(round(100 * done), step, unit=" %")

        engine = load_engine(model, dtype=dtype, device=device, progress=show)
    if engine.invariance_warning:
        print_note(engine.invariance_warning)
    return engine


@contextmanager
def progress(total: int, done: int = 0) -> Iterator[Callable[..., None]]:
    """Show a progress bar on a terminal, elsewhere a line from time to time.

    The yielded function shows a text and advances by one or `steps`.
    """
    with _bar(bars.MofNCompleteColumn(), bars.TimeRemainingColumn(), bars.TextColumn("left,")) as bar:
        task = bar.add_task("", total=total, completed=done)
        lines = ProgressLines(total, done)

        def advance(step: str, steps: int = 1) -> None:
            nonlocal done
            done += steps
            bar.update(task, completed=done, description=printable(step))
            lines.show(done, step)

        yield advance


class ProgressLines:
    """Progress as plain lines on stderr away from a terminal, such as in a log file.

    The first line appears after LINE_PERIOD_S, the others after that time or a share of the elapsed time.

    Args:
        total: Number of steps, 0 if it is unknown.
        done: Number of steps that were done before.
    """

    def __init__(self, total: int, done: int = 0) -> None:
        self._total, self._before = total, done
        self._began = self._shown = time.monotonic()

    def show(self, done: int, step: str, unit: str = "") -> None:
        """Print a line if it is due: the number of done steps, the time left, and the current step."""
        now = time.monotonic()
        elapsed = now - self._began
        if stderr.is_terminal or now - self._shown < max(LINE_PERIOD_S, LINE_SHARE * elapsed):
            return
        self._shown = now
        counted = f"{done} of {self._total}{unit}, " if self._total else ""
        left = ""
        if self._before < done < self._total:
            left = f", about {format_seconds(elapsed / (done - self._before) * (self._total - done))} left"
        print_note(f"{counted}{format_seconds(elapsed)} elapsed{left}: {step}")


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


def report_header(backend: "Backend") -> dict[str, Any]:
    """Return the first fields of a report: name and dtype of the model."""
    return {"model": backend.model_name, "dtype": backend.dtype}


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
    stderr.print(printable(note), soft_wrap=True, markup=False, highlight=False)


def printable(text: str) -> str:
    r"""Return a text with its control characters as escapes, such as \x1b, except for line feeds and tabs.

    Texts of models, servers and files pass through this function on their way to a terminal, which control
    sequences and marks of the writing direction could change.
    """
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


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
    return f"{value:.4g}" if isinstance(value, float) else printable(str(value))


def _bar(*columns: bars.ProgressColumn) -> bars.Progress:
    # Disabled away from a terminal, where it would print an empty line before an error.
    return bars.Progress(
        bars.SpinnerColumn(),
        bars.BarColumn(),
        *columns,
        bars.TimeElapsedColumn(),
        bars.TextColumn("{task.description}", markup=False),
        speed_estimate_period=SPEED_PERIOD_S,
        console=stderr,
        transient=True,
        disable=not stderr.is_terminal,
    )
