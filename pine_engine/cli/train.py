"""The verb `train-molecules`: trains the writing model on a data set, and can be stopped and go on."""

import math
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pine_engine.console import terminal
from pine_engine.console.options import AsJson
from pine_engine.errors import InputError
from pine_engine.molecules.recipe import Recipe
from pine_engine.network.threads import with_threads

if TYPE_CHECKING:
    from pine_engine.molecules.rows import Halves
    from pine_engine.molecules.training import Trained

DEFAULTS = Recipe(steps=1)
EPOCHS = 30


def train_molecules(
    data: Annotated[Path, typer.Argument(help="JSONL of molecules with six properties each.")],
    out: Annotated[Path, typer.Option(help="Folder for the checkpoint, then for the model.")],
    epochs: Annotated[float, typer.Option(help="How often every molecule is shown.")] = EPOCHS,
    steps: Annotated[int | None, typer.Option(help="In place of epochs.")] = None,
    seed: Annotated[int, typer.Option(help="Of weights, orders, noise and spellings.")] = DEFAULTS.seed,
    batch_size: Annotated[int, typer.Option(help="Examples in a step.")] = DEFAULTS.batch_size,
    learning_rate: Annotated[float, typer.Option(help="The highest one.")] = DEFAULTS.learning_rate,
    hidden: Annotated[int, typer.Option(help="Width.")] = DEFAULTS.hidden,
    intermediate: Annotated[int, typer.Option(help="Width inside a layer.")] = DEFAULTS.intermediate,
    layers: Annotated[int, typer.Option(help="Layers.")] = DEFAULTS.layers,
    heads: Annotated[int, typer.Option(help="Heads.")] = DEFAULTS.heads,
    jitter: Annotated[
        float, typer.Option(help="Noise of the values, in standard deviations of the property.")
    ] = DEFAULTS.jitter,
    spelling: Annotated[
        float, typer.Option(help="Share of examples answered with a random spelling.")
    ] = DEFAULTS.spelling,
    exam_every: Annotated[
        int, typer.Option(help="Steps between measurements of the held-out loss.")
    ] = DEFAULTS.exam_every,
    checkpoint_every: Annotated[int, typer.Option(help="Steps between checkpoints.", min=1)] = 100,
    threads: Annotated[int | None, typer.Option(help="Threads of torch; its own choice.", min=1)] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint in OUT.")] = False,
    as_json: AsJson = False,
) -> None:
    """Train a small model of our own that writes molecules with given properties."""
    from pine_engine.molecules.rows import read_molecules, split_halves

    given = read_molecules(data)
    halves = split_halves(given.molecules)
    if not halves.writing or not halves.held_out:
        raise InputError(
            f"{data} has {len(given.molecules)} different molecules, too few to hold some out; give more, "
            "such as 100"
        )
    if not epochs > 0:
        raise InputError(f"epochs is {epochs}; give more than 0")
    recipe = Recipe(
        steps=math.ceil(epochs * len(halves.writing) / max(batch_size, 1)) if steps is None else steps,
        batch_size=batch_size,
        learning_rate=learning_rate,
        seed=seed,
        hidden=hidden,
        intermediate=intermediate,
        layers=layers,
        heads=heads,
        jitter=jitter,
        spelling=spelling,
        exam_every=exam_every,
    )

    from pine_engine.molecules.export import open_folder, save

    open_folder(out)
    with with_threads(threads):
        trained = _train(recipe, halves, out, checkpoint_every, resume)
        facts = save(trained, recipe, data, given, halves, out)
    report = {"folder": str(out), **asdict(facts)}
    terminal.print_report(
        report,
        as_json,
        [
            {
                "model": str(out),
                "parameters": facts.num_parameters,
                "steps": recipe.steps,
                "held-out loss, nats per token": facts.held_out_loss,
                "valid answers": f"{facts.valid:.1%}",
            }
        ],
    )


def _train(recipe: Recipe, halves: "Halves", out: Path, checkpoint_every: int, resume: bool) -> "Trained":
    """Trains, and says on stderr at each exam how far it is, and how long it will still take."""
    from pine_engine.molecules.training import train

    training = train(
        recipe, halves.writing, halves.held_out, out, checkpoint_every=checkpoint_every, resume=resume
    )
    losses: list[float] = []
    began, counted = time.perf_counter(), 0
    while True:
        try:
            state = next(training)
        except StopIteration as end:
            trained: Trained = end.value
            return trained
        losses.append(state.loss)
        counted += 1
        if state.held_out is not None:
            left = (time.perf_counter() - began) / counted * (recipe.steps - state.done)
            terminal.say(
                f"step {state.done} of {recipe.steps}: loss {sum(losses) / len(losses):.3f}, held out "
                f"{state.held_out:.3f} nats per token, {left / 60:.0f} min left"
            )
            losses.clear()
