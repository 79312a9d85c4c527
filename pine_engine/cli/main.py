"""The command line: `python -m pine_engine VERB`. Results go to stdout, everything else to stderr.

A verb imports what computes when it computes: help and bad arguments must not wait for torch.
"""

import sys

import typer

from pine_engine.cli.bench import bench
from pine_engine.cli.compare import compare
from pine_engine.cli.conformance import conformance
from pine_engine.cli.debias import debias
from pine_engine.cli.download_data import download_data
from pine_engine.cli.evaluate import evaluate
from pine_engine.cli.methods import list_methods
from pine_engine.cli.models import show_models
from pine_engine.cli.molecules import molecules
from pine_engine.cli.report import make_report
from pine_engine.cli.reproduce import reproduce
from pine_engine.cli.reproduce_paper import reproduce_paper
from pine_engine.cli.train_molecules import train_molecules
from pine_engine.cli.verify import verify
from pine_engine.console.exit_status import BAD_INPUT, STOPPED
from pine_engine.errors import PineError

app = typer.Typer(
    help="Does the order of the documents change a language model's answer, why, and what removes it?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(compare)
app.command()(verify)
app.command()(debias)
app.command()(conformance)
app.command()(reproduce)
app.command("repeat", hidden=True)(reproduce)  # printed certificates name it
app.command()(bench)
app.command()(evaluate)
app.command()(download_data)
app.command("report")(make_report)
app.command()(reproduce_paper)
app.command()(train_molecules)
app.command()(molecules)
app.command("methods")(list_methods)
app.command("models")(show_models)


def main() -> None:
    """Runs the command line; a PineError becomes one line on stderr and exit status 2."""
    try:
        app()
    except PineError as error:
        print(f"pine_engine: {error}", file=sys.stderr)
        raise SystemExit(BAD_INPUT) from None
    except KeyboardInterrupt:
        raise SystemExit(STOPPED) from None
