"""The subcommand `train-molecules`: run the training script of the repository."""

import math
import sys
from pathlib import Path
from typing import Annotated

import typer

from pine_engine.console import terminal
from pine_engine.console.options import AsJson
from pine_engine.errors import InputError

SCRIPT = Path(__file__).parents[2] / "tools" / "train_molecules.py"
"""Training script. An installed package does not contain it."""


def train_molecules(
    data: Annotated[Path, typer.Argument(help="JSONL of molecules with six properties each.")],
    output_dir: Annotated[Path, typer.Option(help="Folder of the checkpoint and the finished model.")],
    epochs: Annotated[float, typer.Option(help="Epochs.")] = 30,
    steps: Annotated[int | None, typer.Option(help="Optimizer steps. Overrides --epochs.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of weights, orders, noise and spellings.")] = 0,
    batch_size: Annotated[int, typer.Option(help="Examples per step.")] = 32,
    learning_rate: Annotated[float, typer.Option(help="Highest learning rate.")] = 1.5e-3,
    hidden_size: Annotated[int, typer.Option(help="Hidden size.")] = 128,
    intermediate_size: Annotated[int, typer.Option(help="Size of the feed-forward layers.")] = 384,
    layers: Annotated[int, typer.Option(help="Number of layers.")] = 6,
    heads: Annotated[int, typer.Option(help="Number of heads.")] = 4,
    noise_std: Annotated[
        float, typer.Option(help="Noise of the values, in standard deviations of the property.")
    ] = 0.03,
    random_smiles_prob: Annotated[
        float, typer.Option(help="Fraction of the examples answered with a random spelling.")
    ] = 0.5,
    eval_every: Annotated[int, typer.Option(help="Steps between measurements of the held-out loss.")] = 100,
    checkpoint_every: Annotated[int, typer.Option(help="Steps between checkpoints.", min=1)] = 100,
    threads: Annotated[int | None, typer.Option(help="Threads of torch. Default: as is.", min=1)] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from the checkpoint in OUTPUT_DIR.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Train a small model that generates molecules with given properties. Needs the repository."""
    if not SCRIPT.is_file():
        raise InputError(
            "train-molecules needs the repository of PINE Explorer: this installation has no "
            f"{SCRIPT.relative_to(SCRIPT.parents[1])}; run the command in a clone of the repository"
        )
    from pine_engine.molecules.request_rows import read_molecules, split_molecules

    source = read_molecules(data)
    split = split_molecules(source.molecules)
    if not split.train or not split.held_out:
        raise InputError(
            f"{data} has {len(source.molecules)} different molecules, too few to hold some out; give more, "
            "such as 100"
        )
    if not epochs > 0:
        raise InputError(f"epochs is {epochs}; give more than 0")

    sys.path.insert(0, str(SCRIPT.parents[1]))  # the console command does not look there
    from pine_engine.network.thread_tuner import torch_num_threads
    from tools import train_molecules as script

    recipe = script.Recipe(
        steps=math.ceil(epochs * len(split.train) / max(batch_size, 1)) if steps is None else steps,
        batch_size=batch_size,
        learning_rate=learning_rate,
        seed=seed,
        hidden_size=hidden_size,
        intermediate_size=intermediate_size,
        layers=layers,
        heads=heads,
        noise_std=noise_std,
        random_smiles_prob=random_smiles_prob,
        eval_every=eval_every,
    )
    script.create_folder(output_dir)
    with torch_num_threads(threads):
        training = script.train(
            recipe, split.train, split.held_out, output_dir, checkpoint_every=checkpoint_every, resume=resume
        )
        trained = script.run_with_progress(training, recipe.steps, report=terminal.say)
        facts = script.save(trained, recipe, data, source, split, output_dir)
    row = {
        "model": str(output_dir),
        "parameters": facts["num_parameters"],
        "steps": recipe.steps,
        "held-out loss, nats per token": facts["held_out_loss"],
        "valid answers": f"{facts['valid']:.1%}",
    }
    terminal.print_report({"folder": str(output_dir), **facts}, as_json, [row])
