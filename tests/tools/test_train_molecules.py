"""Training of the molecule model: tokenizer, examples, resume, and the recipe of the shipped model."""

import re
from collections import Counter
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st
from tokenizers import Tokenizer
from transformers import LlamaConfig, LlamaForCausalLM
from typer.main import get_command

from pine_engine import Document, Engine, InputError
from pine_engine.lab.molecules.request_rows import PROPERTIES, canonical_smiles
from pine_engine.models.load import SHIPPED
from pine_engine.prompts.layout import tokenize
from pine_engine.prompts.tasks import TASKS
from tests.support.molecule_rows import SMILES, molecule, row, write_rows
from tools.molecules.batches import TrainingBatches, held_out_batches, item, prompt
from tools.molecules.recipe import Recipe
from tools.molecules.tokenizer import ANY_SPELLING, CANONICAL, build_tokenizer
from tools.molecules.training import mean_loss, new_model, train
from tools.train_molecules import app, train_molecules

TOKENIZER = build_tokenizer()
MOLECULES = [molecule(smiles) for smiles in SMILES[:40]]
TRAINING, HELD_OUT = MOLECULES[:30], [molecule(smiles) for smiles in SMILES[40:46]]
RECIPE = Recipe(
    steps=9, batch_size=4, learning_rate=1.5e-3, seed=0, hidden_size=16, intermediate_size=32, layers=1,
    heads=2, noise_std=0.03, random_smiles_prob=0.5, eval_every=2,
)  # fmt: skip


@given(
    st.permutations(list(PROPERTIES)),
    st.lists(st.decimals(-100, 200, places=4).map(str), min_size=6, max_size=6),
)
def test_training_prompt_has_tokens_of_task_prompt(names: list[str], texts: list[str]) -> None:
    documents = [Document(text, name) for name, text in zip(names, texts, strict=True)]
    layout = tokenize(TASKS["qm9"].prompt(TOKENIZER, question="", documents=documents), TOKENIZER)
    items = [item(name, text) for name, text in zip(names, texts, strict=True)]
    assert list(layout.ids) == TOKENIZER(prompt(items))["input_ids"]
    assert (len(layout.prefix), len(layout.suffix)) == (1, 1)


def batches(**changes: Any) -> TrainingBatches:
    recipe = replace(RECIPE, **{"batch_size": 8, "noise_std": 0.0, "random_smiles_prob": 0.0, **changes})
    return TrainingBatches(TOKENIZER, MOLECULES, recipe)


def examples(of: TrainingBatches, steps: int) -> list[tuple[str, str]]:
    pairs = []
    for step in range(steps):
        for ids, labels in zip(*of.batch(step), strict=True):
            labeled = labels >= 0
            assert (ids[labeled] == labels[labeled]).all()
            answer, text = str(TOKENIZER.decode(ids[labeled])), str(TOKENIZER.decode(ids))
            assert answer.endswith("</s>")
            pairs.append((text.partition(answer)[0], answer.removesuffix("</s>")))
    return pairs


def test_epoch_has_each_molecule_once_in_new_order() -> None:
    pairs = examples(batches(), 10)
    epochs = [[answer for _, answer in pairs[first : first + 40]] for first in (0, 40)]
    assert Counter(epochs[0]) == Counter(epochs[1]) == Counter(one.smiles for one in MOLECULES)
    assert epochs[0] != epochs[1]
    assert len({tuple(part.split("*")[0] for part in text[3:].split()[:6]) for text, _ in pairs}) > 60
    text, answer = pairs[0]
    items = [part.split("*") for part in text.removeprefix("<s>").removesuffix(CANONICAL).split()]
    (found,) = (one for one in MOLECULES if one.smiles == answer)
    expected = dict(zip(PROPERTIES, found.properties, strict=True))
    assert {name: float(value) for name, value, _ in items} == pytest.approx(expected, abs=0.051)


def test_random_spelling_follows_own_separator() -> None:
    pairs = examples(batches(random_smiles_prob=0.5, batch_size=40), 5)
    smiles = {one.smiles for one in MOLECULES}
    random_spelling = [answer for text, answer in pairs if text.endswith(ANY_SPELLING)]
    assert 60 < len(random_spelling) < 140 and set(random_spelling) - smiles
    assert set(map(canonical_smiles, random_spelling)) <= set(map(canonical_smiles, smiles))
    canonical = [answer for text, answer in pairs if text.endswith(CANONICAL)]
    assert len(canonical) + len(random_spelling) == len(pairs) and set(canonical) <= smiles


def weights_of(model: LlamaForCausalLM) -> bytes:
    return b"".join(tensor.numpy().tobytes() for tensor in model.state_dict().values())


@pytest.mark.slow
def test_equal_recipe_has_bitwise_identical_best_weights() -> None:
    """Overfits four molecules, so that the best weights are those of an early step."""
    recipe = replace(RECIPE, steps=24, learning_rate=0.05)
    random_state = torch.get_rng_state()
    losses: dict[int, float] = {}
    trained = train(recipe, TRAINING[:4], HELD_OUT, lambda step, _, held_out: losses.update({step: held_out}))
    assert torch.equal(torch.get_rng_state(), random_state)
    assert list(losses) == list(range(2, 25, 2))
    assert trained.held_out == min(losses.values()) == losses[trained.best_step] < losses[24]
    batches = held_out_batches(TOKENIZER, HELD_OUT)
    assert mean_loss(trained.model, batches) == pytest.approx(trained.held_out, abs=1e-6)
    again, other = (train(replace(recipe, seed=seed), TRAINING[:4], HELD_OUT) for seed in (0, 1))
    assert weights_of(again.model) == weights_of(trained.model) != weights_of(other.model)


def test_saved_model_loads_with_card(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    rows, out = write_rows(tmp_path / "train.jsonl", map(row, SMILES)), tmp_path / "model"
    threads = torch.get_num_threads()
    recipe = replace(RECIPE, steps=4)
    report = train_molecules(rows, out, recipe, threads=threads + 1).report
    assert torch.get_num_threads() == threads
    assert "step 4: loss" in capfd.readouterr().err
    card = (out / "README.md").read_text(encoding="utf-8")
    assert f"| held-out loss | {report['held_out_loss']:.3f} nats" in card and "--steps 4 " in card
    num_parameters = sum(weights.numel() for weights in Engine.load(str(out)).model.parameters())
    assert f"| parameters | {num_parameters:,}, " in card
    with pytest.raises(InputError):
        train_molecules(rows, out, recipe)


def test_defaults_are_recipe_of_shipped_model() -> None:
    """The command on its card, the tokenizer and the configuration."""
    folder = SHIPPED / "molecules"
    card = (folder / "README.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^    python -m tools\.train_molecules (.*)$", card, re.MULTILINE)
    context = get_command(app).make_context("train", line.split())
    options = {field.name: context.params[field.name] for field in fields(Recipe)}
    assert Recipe(**options) == Recipe()
    assert TOKENIZER.backend_tokenizer.to_str() == Tokenizer.from_file(f"{folder}/tokenizer.json").to_str()
    config = LlamaConfig.from_pretrained(folder).to_dict()
    new = new_model(Recipe(), TOKENIZER).config.to_dict()
    assert {**new, **{key: config[key] for key in ("architectures", "dtype")}} == config
