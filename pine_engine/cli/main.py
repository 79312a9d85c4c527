"""Command line: `python -m pine_engine SUBCOMMAND`. Results go to stdout, everything else to stderr.

Subcommands import torch only when they compute, so that help and errors appear at once.
"""

import ast
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import pine_engine as pine
from pine_engine.additions import find_addition
from pine_engine.cli import output
from pine_engine.cli.options import as_command
from pine_engine.cli.output import BAD_INPUT, STOPPED
from pine_engine.errors import PineError, is_out_of_memory, one_line

SUBCOMMANDS = {
    **{name: f"pine_engine.cli.{name}" for name in ("compare", "verify", "bench", "methods", "serve")},
    **{"reproduce": "pine_engine.cli.verify", "models": "pine_engine.cli.methods"},
    "lm-eval": "pine_engine.cli.serve",
    **find_addition("pine_engine.lab", "SUBCOMMANDS", {}),
}
"""Module by name of the subcommand, which is a function in this module."""

EARLIER_NAMES = {"repeat": "reproduce"}  # the name in certificates of earlier versions


class Subcommands(TyperGroup):
    """Subcommands that are imported when they run: the list of all has only their descriptions."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names."""
        return list(SUBCOMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> TyperCommand | None:
        """Return a subcommand without options, for the list."""
        name = EARLIER_NAMES.get(cmd_name, cmd_name)
        if name not in SUBCOMMANDS:
            return None
        return TyperCommand(cmd_name, help=_description(name))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return name, subcommand and arguments of a command line."""
        self.commands = {name: TyperCommand(name) for name in SUBCOMMANDS}  # names for suggestions
        name, listed, rest = super().resolve_command(ctx, args)
        return name, listed and import_subcommand(str(name)), rest


def import_subcommand(name: str) -> TyperCommand:
    """Return a subcommand with its options."""
    current = EARLIER_NAMES.get(name, name)
    file = import_module(SUBCOMMANDS[current])
    single = typer.Typer(add_completion=False)
    single.command(name)(as_command(getattr(file, current.replace("-", "_"))))
    command = typer.main.get_command(single)
    assert isinstance(command, TyperCommand)
    return command


def _description(name: str) -> str:
    """Return the first line of the docstring of a subcommand without importing its file."""
    spec = find_spec(SUBCOMMANDS[name])
    assert spec and spec.origin
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    functions = {each.name: each for each in tree.body if isinstance(each, ast.FunctionDef)}
    return (ast.get_docstring(functions[name.replace("-", "_")]) or "").partition("\n")[0]


app = typer.Typer(
    cls=Subcommands,
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
    """Run the command line.

    Prints a PineError, or that memory does not suffice, as one line on stderr and exits with status 2.
    """
    try:
        with ends_on_interrupt():
            app()
    except Exception as error:
        message = str(error)
        if not isinstance(error, PineError):
            if is_out_of_memory(error):
                message = f"not enough memory ({one_line(error)}); use a smaller model or shorter prompts"
            elif isinstance(error, OSError) and error.filename is not None:
                message = f"{error.filename} cannot be used: {error.strerror}. Give another path."
            else:
                raise
        print(output.printable(f"pine_engine: {message}"), file=sys.stderr)
        raise SystemExit(BAD_INPUT) from None
