"""What the command line shows: results on stdout, progress and complaints on stderr."""

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

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

from pine_engine.console.tables import print_rows
from pine_engine.errors import ModelError

if TYPE_CHECKING:
    from pine_engine.engine.engine import Engine

PACE_S = 600.0
"""Seconds over which the pace is told; one step may take a minute."""

stderr = Console(stderr=True)
stdout = Console()


def load(model: str | None, dtype: str, device: str, *, reads_text: bool = False) -> "Engine":
    """The engine; a bar shows that it loads, and how far the embedded model is unpacked at its first use.

    reads_text: it must have a tokenizer. Raises ModelError if a model with random weights is asked to read
    text, and what load_engine raises.
    """
    from pine_engine.benchmark.random_models import is_synthetic, load_engine

    if reads_text and is_synthetic(model):
        raise ModelError(
            f"{model} has random weights and no tokenizer, so it cannot read text; it is for `bench` and "
            "`verify --self-test`: give a real model here"
        )
    with _bar() as bar:
        task = bar.add_task("loading the model", total=None)

        def show(done: float, words: str) -> None:
            bar.update(task, completed=done, total=1.0, description=words)

        engine = load_engine(model, dtype=dtype, device=device, progress=show)
    if engine.invariance_warning:
        say(engine.invariance_warning)
    return engine


@contextmanager
def progress(total: int, done: int = 0) -> Iterator[Callable[[str], None]]:
    """A progress bar on a terminal; what it yields moves it on by one and shows a few words.

    done: how much of it was done before. The time left is told from the pace so far.
    """
    with _bar(MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("left,")) as bar:
        task = bar.add_task("", total=total, completed=done)
        yield lambda words: bar.update(task, advance=1, description=words)


def print_report(report: dict[str, Any], as_json: bool, rows: list[dict[str, Any]]) -> None:
    """The report as one line of JSON, or its rows for people, with the dtype of the report on stderr.

    JSON knows no NaN and no infinity; they are null there.
    """
    if as_json:
        print(json.dumps(_numbers_of_json(report), allow_nan=False))
    else:
        print_rows(stdout, rows)
        if "dtype" in report:
            say(f"dtype: {report['dtype']}")


def say(sentence: str) -> None:
    """A sentence beside the results, on stderr, in one line however long."""
    stderr.print(sentence, soft_wrap=True, markup=False, highlight=False)


def _numbers_of_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _numbers_of_json(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_numbers_of_json(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _bar(*columns: ProgressColumn) -> Progress:
    # Away from a terminal it would leave an empty line beside the one that says what is wrong.
    return Progress(
        SpinnerColumn(),
        BarColumn(),
        *columns,
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
        speed_estimate_period=PACE_S,
        console=stderr,
        transient=True,
        disable=not stderr.is_terminal,
    )
