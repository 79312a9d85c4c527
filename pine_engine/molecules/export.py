"""A trained model becomes a folder that the engine loads, with a card that says what it is worth."""

import hashlib
from dataclasses import asdict
from pathlib import Path

from pine_engine.engine.engine import Engine
from pine_engine.errors import InputError
from pine_engine.models.checkpoint import quiet_transformers
from pine_engine.models.load import load
from pine_engine.molecules.generate import random_orders, write_molecules
from pine_engine.molecules.model_card import Facts, card
from pine_engine.molecules.recipe import Recipe
from pine_engine.molecules.rows import Halves, MoleculeSet
from pine_engine.molecules.tokenizer import build_tokenizer
from pine_engine.molecules.training import CHECKPOINT, Trained, mean_loss
from pine_engine.molecules.training_batches import held_out_batch

WEIGHTS = "model.safetensors"


def open_folder(folder: Path) -> None:
    """Makes the folder. Raises InputError if it holds a finished model."""
    if (folder / WEIGHTS).exists():
        raise InputError(f"{folder} holds a finished model; give another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder} cannot be made: {error.strerror}; give another folder") from error


def save(
    trained: Trained, recipe: Recipe, data: Path, given: MoleculeSet, halves: Halves, folder: Path
) -> Facts:
    """Writes model, tokenizer and card, measured as they will be loaded, and removes the checkpoint."""
    with quiet_transformers():
        trained.model.half().save_pretrained(folder)
        build_tokenizer().save_pretrained(folder)
    loaded = load(str(folder), dtype="float32")
    # Measured first: in an engine the model reads prompts in the engine's own way alone.
    held_out_loss = mean_loss(loaded.model, [held_out_batch(build_tokenizer(), halves.held_out)])
    engine = Engine(loaded.model, loaded.tokenizer, stop_ids=loaded.stop_ids)
    orders = [random_orders(molecule, 1, recipe.seed) for molecule in halves.held_out]
    written = write_molecules(engine, halves.held_out, orders, ["vanilla"])
    facts = Facts(
        recipe=recipe,
        command=command(recipe, data),
        data=data.name,
        data_sha256=hashlib.sha256(data.read_bytes()).hexdigest(),
        sources=given.sources,
        num_learned=len(halves.writing),
        num_held_out=len(halves.held_out),
        num_left_out=len(halves.judging),
        num_parameters=sum(weights.numel() for weights in engine.model.parameters()),
        size_bytes=(folder / WEIGHTS).stat().st_size,
        best_step=trained.best_step,
        held_out_loss=held_out_loss,
        valid=sum(one.smiles is not None for one in written) / len(written),
    )
    (folder / "README.md").write_text(card(facts), encoding="utf-8")
    (folder / CHECKPOINT).unlink(missing_ok=True)
    return facts


def command(recipe: Recipe, data: Path) -> str:
    """The command line that trains by this recipe."""
    options = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in asdict(recipe).items())
    return f"python -m pine_engine train-molecules {data.name} --out FOLDER {options}"
