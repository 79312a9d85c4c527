"""Subcommand `train-molecules`: run the training script of the repository."""

import dataclasses
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from pine_engine.cli import output
from pine_engine.cli.options import Limit, Positive
from pine_engine.cli.output import CommandResult
from pine_engine.errors import InputError
from pine_engine.molecules.request_rows import read_molecules, split_molecules

SCRIPT = Path(__file__).parents[2] / "tools" / "train_molecules.py"
"""Training script. An installed package does not contain it."""


@dataclass(frozen=True)
class Recipe:
    """Options that determine the weights, apart from the data.

    Attributes:
        steps: Number of optimizer steps. Default: those of the epochs.
        batch_size: Examples per step.
        learning_rate: Maximum learning rate.
        seed: Seed of weights, orders, noise and random SMILES.
        hidden_size: Hidden size, a multiple of twice the number of heads.
        intermediate_size: Size of the feed-forward layers.
        layers: Number of layers.
        heads: Number of heads.
        noise_std: Standard deviation of the noise of a value, in standard deviations of its property.
        random_smiles_prob: Fraction of the examples with a random instead of the canonical SMILES.
        eval_every: Steps between two measurements of the held-out loss. The best weights are kept.
    """

    steps: Annotated[int, typer.Option(min=0)] = 0
    batch_size: Positive = 32
    learning_rate: float = 1.5e-3
    seed: int = 0
    hidden_size: Positive = 128
    intermediate_size: Positive = 384
    layers: Positive = 6
    heads: Positive = 4
    noise_std: float = 0.03
    random_smiles_prob: float = 0.5
    eval_every: Positive = 100

    def check(self) -> None:
        """Raise InputError for a value out of range; the types of the options have other limits."""
        for field, is_valid, expected in (
            ("hidden_size", self.hidden_size % (2 * self.heads) == 0, f"a multiple of {2 * self.heads}"),
            ("learning_rate", self.learning_rate > 0, "more than 0"),
            ("noise_std", self.noise_std >= 0, "0 or more"),
            ("random_smiles_prob", 0 <= self.random_smiles_prob <= 1, "0 to 1"),
        ):
            if not is_valid:
                message = f"invalid {field}: got {getattr(self, field)}, expected {expected}"
                raise InputError(message, field=field)


def train_molecules(
    data: Path,
    output_dir: Annotated[Path, typer.Option()],
    epochs: float = 30,
    recipe: Recipe = Recipe(),
    checkpoint_every: Positive = 100,
    threads: Limit = None,
    resume: bool = False,
) -> CommandResult:
    """Train a small model that generates molecules with requested properties. Needs the repository.

    Args:
        data: JSONL file of molecules with six properties each.
        output_dir: Folder for the checkpoint and the finished model.
        epochs: Number of epochs.
        recipe: Options that determine the weights.
        checkpoint_every: Steps between two checkpoints.
        threads: Number of threads of torch. Default: torch's number.
        resume: Continue from the checkpoint in the output folder.
    """
    if not SCRIPT.is_file():
        missing = SCRIPT.relative_to(SCRIPT.parents[1])
        raise InputError(f"this installation has no {missing}; run the command in a clone of the repository")
    found, sources = read_molecules(data)
    split = split_molecules(found)
    if not split["train"] or not split["held_out"]:
        raise InputError(f"{data} has too few molecules to hold some out: got {len(found)}; give 100 or more")
    if not epochs > 0:
        raise InputError(f"epochs is {epochs}; give more than 0", field="epochs")
    recipe.check()
    num_steps = recipe.steps or math.ceil(epochs * len(split["train"]) / recipe.batch_size)
    recipe = dataclasses.replace(recipe, steps=num_steps)

    sys.path.insert(0, str(SCRIPT.parents[1]))  # the console command does not search there
    from pine_engine.network.thread_tuner import torch_num_threads
    from tools import train_molecules as script

    script.create_folder(output_dir)
    with torch_num_threads(threads):
        parts = split["train"], split["held_out"]
        steps = script.train(recipe, *parts, output_dir, checkpoint_every=checkpoint_every, resume=resume)
        trained = script.run_with_progress(steps, recipe.steps, report=output.print_note)
        facts = script.save(trained, recipe, data, sources, split, output_dir)
    row = {
        "model": str(output_dir),
        "parameters": facts["num_parameters"],
        "steps": recipe.steps,
        "held-out loss, nats per token": facts["held_out_loss"],
        "valid answers": f"{facts['valid']:.1%}",
    }
    return CommandResult({"folder": str(output_dir), **facts}, [row])
