"""Files of the trained molecule model: weights, tokenizer, and a model card with its measurements."""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from pine_engine.engine.engine import Engine
from pine_engine.lab.molecules.generate import generate_molecules, random_orders
from pine_engine.lab.molecules.request_rows import PROPERTIES, Molecule, Part
from pine_engine.models.checkpoint import quiet_transformers
from pine_engine.models.load import load
from tools.molecules.batches import held_out_batches
from tools.molecules.recipe import Recipe
from tools.molecules.tokenizer import build_tokenizer
from tools.molecules.training import TrainedModel, mean_loss

WEIGHTS = "model.safetensors"
CARD = Path(__file__).with_name("molecule_card.txt")


def save(
    trained: TrainedModel,
    recipe: Recipe,
    data: Path,
    sources: Sequence[str],
    split: dict[Part, list[Molecule]],
    folder: Path,
) -> None:
    """Write model, tokenizer and model card, with measurements of the loaded model."""
    with quiet_transformers():
        trained.model.half().save_pretrained(folder)
        build_tokenizer().save_pretrained(folder)
    loaded = load(str(folder), dtype="float32")
    # Before the engine patches the attention of the model.
    loss = mean_loss(loaded.model, held_out_batches(build_tokenizer(), split["held_out"]))
    engine = Engine(loaded.model, loaded.tokenizer, stop_token_ids=loaded.stop_token_ids)
    orders = [random_orders(molecule, 1, recipe.seed) for molecule in split["held_out"]]
    generated = generate_molecules(engine, split["held_out"], orders, ["vanilla"])
    card = CARD.read_text(encoding="utf-8").format(
        recipe=recipe,
        trained=trained,
        data=data,
        sources="; ".join(sources),
        sha256=hashlib.sha256(data.read_bytes()).hexdigest(),
        size_mb=(folder / WEIGHTS).stat().st_size / 1e6,
        num_parameters=sum(weights.numel() for weights in engine.model.parameters()),
        num_learned=len(split["train"]),
        num_held_out=len(split["held_out"]),
        num_left_out=len(split["predictor"]),
        epochs=recipe.steps * recipe.batch_size / len(split["train"]),
        loss=loss,
        valid=sum(answer.smiles is not None for answer in generated) / len(generated),
        names=", ".join(f"`{name}` ({unit})" for name, unit in PROPERTIES.items()),
        options=" ".join(f"--{name.replace('_', '-')} {value}" for name, value in asdict(recipe).items()),
    )
    (folder / "README.md").write_text(card, encoding="utf-8")
