"""Subcommand `train-molecules`: run the training script of the repository."""

import math
import sys
from pathlib import Path
from typing import Annotated

import typer

from pine_engine.cli import output
from pine_engine.cli.options import AsJson, Limit, Positive
from pine_engine.errors import InputError
from pine_engine.molecules.request_rows import read_molecules, split_molecules

SCRIPT = Path(__file__).parents[2] / "tools" / "train_molecules.py"
"""Training script. An installed package does not contain it."""


def train_molecules(
    data: Path,
    output_dir: Annotated[Path, typer.Option()],
    epochs: float = 30,
    steps: int | None = None,
    seed: int = 0,
    batch_size: int = 32,
    learning_rate: float = 1.5e-3,
    hidden_size: int = 128,
    intermediate_size: int = 384,
    layers: int = 6,
    heads: int = 4,
    noise_std: float = 0.03,
    random_smiles_prob: float = 0.5,
    eval_every: int = 100,
    checkpoint_every: Positive = 100,
    threads: Limit = None,
    resume: bool = False,
    as_json: AsJson = False,
) -> None:
    """Train a small model that generates molecules with requested properties. Needs the repository.

    Args:
        data: JSONL file of molecules with six properties each.
        output_dir: Folder for the checkpoint and the finished model.
        epochs: Number of epochs.
        steps: Number of optimizer steps. Overrides --epochs.
        seed: Seed of weights, orders, noise and random SMILES.
        batch_size: Examples per step.
        learning_rate: Maximum learning rate.
        hidden_size: Hidden size.
        intermediate_size: Size of the feed-forward layers.
        layers: Number of layers.
        heads: Number of heads.
        noise_std: Standard deviation of the noise of a value, in standard deviations of its property.
        random_smiles_prob: Fraction of the examples with a random instead of the canonical SMILES.
        eval_every: Steps between two measurements of the held-out loss.
        checkpoint_every: Steps between two checkpoints.
        threads: Number of threads of torch. Default: torch's number.
        resume: Continue from the checkpoint in the output folder.
        as_json: Print JSON.
    """
    if not SCRIPT.is_file():
        raise InputError(
            "train-molecules needs the repository of PINE Explorer: this installation has no "
            f"{SCRIPT.relative_to(SCRIPT.parents[1])}; run the command in a clone of the repository"
        )
    source = read_molecules(data)
    split = split_molecules(source.molecules)
    if not split.train or not split.held_out:
        raise InputError(
            f"{data} has {len(source.molecules)} different molecules, too few to hold some out; give more, "
            "such as 100"
        )
    if not epochs > 0:
        raise InputError(f"epochs is {epochs}; give more than 0")

    sys.path.insert(0, str(SCRIPT.parents[1]))  # the console command does not search there
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
    from pine_engine.network.thread_tuner import torch_num_threads

    script.create_folder(output_dir)
    with torch_num_threads(threads):
        training = script.train(
            recipe,
            split.train,
            split.held_out,
            output_dir,
            checkpoint_every=checkpoint_every,
            resume=resume,
        )
        trained = script.run_with_progress(training, recipe.steps, report=output.print_note)
        facts = script.save(trained, recipe, data, source, split, output_dir)
    row = {
        "model": str(output_dir),
        "parameters": facts["num_parameters"],
        "steps": recipe.steps,
        "held-out loss, nats per token": facts["held_out_loss"],
        "valid answers": f"{facts['valid']:.1%}",
    }
    output.print_report({"folder": str(output_dir), **facts}, as_json, [row])
