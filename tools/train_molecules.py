"""Training of the shipped molecule model: a small Llama that generates SMILES for six requested properties.

    python -m tools.train_molecules DATA.jsonl --output-dir FOLDER

Recipe and data determine the weights bitwise, on the same machine and with the same number of threads.
"""

from pathlib import Path
from typing import Annotated

import typer

from pine_engine.cli.options import Limit, as_command
from pine_engine.cli.output import CommandResult, print_note
from pine_engine.errors import InputError
from pine_engine.lab.molecules.request_rows import read_molecules, split_molecules
from pine_engine.network.thread_tuner import torch_num_threads
from tools.molecules.export import WEIGHTS, save
from tools.molecules.recipe import Recipe
from tools.molecules.training import train


def train_molecules(
    data: Path, output_dir: Annotated[Path, typer.Option()], recipe: Recipe = Recipe(), threads: Limit = None
) -> CommandResult:
    """Train a small model that generates molecules with requested properties.

    Args:
        data: JSONL file of molecules with six properties each.
        output_dir: Folder for the model.
        recipe: Options that determine the weights.
        threads: Number of threads of torch. Default: torch's number.
    """
    if (output_dir / WEIGHTS).exists():
        raise InputError(f"{output_dir} has a finished model. Give another folder.")
    output_dir.mkdir(parents=True, exist_ok=True)
    molecules, sources = read_molecules(data)
    split = split_molecules(molecules)
    with torch_num_threads(threads):
        trained = train(recipe, split["train"], split["held_out"], print_losses)
        save(trained, recipe, data, sources, split, output_dir)
    row = {"model": str(output_dir), "best_step": trained.best_step, "held_out_loss": trained.held_out}
    return CommandResult(row, [row])


def print_losses(step: int, loss: float, held_out: float) -> None:
    """Print the losses of a step."""
    print_note(f"step {step}: loss {loss:.3f}, held out {held_out:.3f} nats per token")


app = typer.Typer(add_completion=False)
app.command()(as_command(train_molecules))

if __name__ == "__main__":
    app()
