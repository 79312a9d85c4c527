"""Command line: `python -m pine_engine SUBCOMMAND`. Results go to stdout, everything else to stderr.

Subcommands import torch only when they compute, so that help and errors appear at once.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Annotated

import typer

import pine_engine as pine
from pine_engine.cli import output
from pine_engine.cli.bench import bench
from pine_engine.cli.compare import compare
from pine_engine.cli.conformance import conformance
from pine_engine.cli.debias import debias
from pine_engine.cli.download_data import download_data
from pine_engine.cli.evaluate import evaluate
from pine_engine.cli.lm_eval import lm_eval
from pine_engine.cli.methods import methods
from pine_engine.cli.models import models
from pine_engine.cli.molecules import molecules
from pine_engine.cli.options import as_command
from pine_engine.cli.output import BAD_INPUT, STOPPED
from pine_engine.cli.report import report
from pine_engine.cli.reproduce import reproduce
from pine_engine.cli.reproduce_paper import reproduce_paper
from pine_engine.cli.serve import serve
from pine_engine.cli.train_molecules import train_molecules
from pine_engine.cli.verify import verify
from pine_engine.errors import PineError

SUBCOMMANDS = (
    *(compare, verify, debias, conformance, reproduce, bench, evaluate, download_data, report),
    *(reproduce_paper, train_molecules, molecules, methods, models, serve, lm_eval),
)

app = typer.Typer(
    help="Does the order of the documents change a language model's answer, why, and what removes it?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        print(f"pine-explorer {pine.__version__}")
        raise typer.Exit


@app.callback()
def root(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Declare the options before the subcommand."""


for function in SUBCOMMANDS:
    app.command(function.__name__.replace("_", "-"))(as_command(function))
app.command("repeat", hidden=True)(as_command(reproduce))  # the name in certificates of earlier versions


MAX_CLEANUP_S = 0.7
"""Time in which a command ends after Ctrl-C; a layer of a large model may take longer."""


@contextmanager
def ends_on_interrupt() -> Iterator[None]:
    """Raise KeyboardInterrupt on Ctrl-C inside the block, and exit after its cleanup or MAX_CLEANUP_S.

    The exit skips the finalization of the interpreter, which waits for the thread of the model.
    """
    interrupted = threading.Event()

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        interrupted.set()
        timer.start()
        raise KeyboardInterrupt

    timer = threading.Timer(MAX_CLEANUP_S, _exit)
    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        if interrupted.is_set():
            _exit()
        signal.signal(signal.SIGINT, before)


def _exit() -> None:
    output.stderr.show_cursor()
    sys.stdout.flush()
    os._exit(STOPPED)


def main() -> None:
    """Run the command line. Prints a PineError as one line on stderr and exits with status 2."""
    try:
        with ends_on_interrupt():
            app()
    except PineError as error:
        print(f"pine_engine: {error}", file=sys.stderr)
        raise SystemExit(BAD_INPUT) from None
