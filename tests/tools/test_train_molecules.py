"""Training of the molecule model: tokenizer, examples, resume, and the subcommand."""

from collections import Counter
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import LlamaForCausalLM

from pine_engine import Document, Engine, InputError
from pine_engine.cli import train_molecules as subcommand
from pine_engine.cli.train_molecules import Recipe
from pine_engine.molecules.chemistry import canonical_smiles
from pine_engine.molecules.request_rows import PROPERTIES
from pine_engine.prompts.layout import tokenize
from pine_engine.prompts.tasks import TASKS
from tests.support.commands import Run
from tests.support.molecule_rows import SMILES, molecule, row, write_rows
from tools import train_molecules as script
from tools.train_molecules import (
    ANY_SPELLING,
    CANONICAL,
    CHARACTERS,
    TrainedModel,
    TrainingBatches,
    TrainingStep,
    train,
)

TOKENIZER = script.build_tokenizer()
MOLECULES = [molecule(smiles) for smiles in SMILES[:40]]
TRAINING, HELD_OUT = MOLECULES[:30], [molecule(smiles) for smiles in SMILES[40:46]]
RECIPE = Recipe(
    steps=9, batch_size=4, learning_rate=1.5e-3, seed=0, hidden_size=16, intermediate_size=32, layers=1,
    heads=2, noise_std=0.03, random_smiles_prob=0.5, eval_every=2,
)  # fmt: skip
OPTIONS = [
    part
    for name in ("batch_size", "hidden_size", "intermediate_size", "layers", "heads", "eval_every")
    for part in (f"--{name.replace('_', '-')}", getattr(RECIPE, name))
]


@given(st.text(st.sampled_from(CHARACTERS), max_size=30))
def test_tokenizer_round_trips_smiles(text: str) -> None:
    smiles = text.replace(".", "").replace("* ", "")
    assert TOKENIZER.decode(TOKENIZER(smiles)["input_ids"], skip_special_tokens=True) == smiles


@given(
    st.permutations(list(PROPERTIES)),
    st.lists(st.decimals(-100, 200, places=4).map(str), min_size=6, max_size=6),
)
def test_training_prompt_has_tokens_of_task_prompt(names: list[str], texts: list[str]) -> None:
    documents = [Document(text, name) for name, text in zip(names, texts, strict=True)]
    layout = tokenize(TASKS["qm9"].prompt(TOKENIZER, question="", documents=documents), TOKENIZER)
    items = [script.item(name, text) for name, text in zip(names, texts, strict=True)]
    assert list(layout.ids) == TOKENIZER(script.prompt(items))["input_ids"]
    assert (len(layout.prefix), len(layout.suffix)) == (1, 1)


def batches(**changes: Any) -> TrainingBatches:
    recipe = replace(RECIPE, **{"batch_size": 8, "noise_std": 0.0, "random_smiles_prob": 0.0, **changes})
    return TrainingBatches(TOKENIZER, MOLECULES, recipe)


def examples(of: TrainingBatches, steps: int) -> list[tuple[str, str]]:
    pairs = []
    for step in range(steps):
        batch = of.batch(step)
        for ids, labels in zip(batch.ids, batch.labels, strict=True):
            labeled = labels >= 0
            assert (ids[labeled] == labels[labeled]).all()
            answer, text = str(TOKENIZER.decode(ids[labeled])), str(TOKENIZER.decode(ids))
            assert answer.endswith("</s>")
            pairs.append((text.partition(answer)[0], answer.removesuffix("</s>")))
    return pairs


def test_example_requests_properties_and_labels_smiles_only() -> None:
    text, answer = examples(batches(), 1)[0]
    wanted = next(one for one in MOLECULES if one.smiles == answer)
    items = [part.split("*") for part in text.removeprefix("<s>").removesuffix(CANONICAL).split()]
    assert {name: float(value) for name, value, _ in items} == pytest.approx(
        dict(zip(PROPERTIES, wanted.properties, strict=True)), abs=0.051
    )


def test_epoch_has_each_molecule_once_in_new_order() -> None:
    pairs = examples(batches(), 10)
    epochs = [[answer for _, answer in pairs[first : first + 40]] for first in (0, 40)]
    assert Counter(epochs[0]) == Counter(epochs[1]) == Counter(one.smiles for one in MOLECULES)
    assert epochs[0] != epochs[1]
    assert len({tuple(part.split("*")[0] for part in text[3:].split()[:6]) for text, _ in pairs}) > 60


def test_random_spelling_follows_own_separator() -> None:
    pairs = examples(batches(random_smiles_prob=0.5, batch_size=40), 5)
    smiles = {one.smiles for one in MOLECULES}
    random_spelling = [answer for text, answer in pairs if text.endswith(ANY_SPELLING)]
    assert 60 < len(random_spelling) < 140 and set(random_spelling) - smiles
    assert set(map(canonical_smiles, random_spelling)) <= set(map(canonical_smiles, smiles))
    canonical = [answer for text, answer in pairs if text.endswith(CANONICAL)]
    assert len(canonical) + len(random_spelling) == len(pairs) and set(canonical) <= smiles


def finish(training: Generator[TrainingStep, None, TrainedModel]) -> tuple[list[TrainingStep], TrainedModel]:
    steps = []
    while True:
        try:
            steps.append(next(training))
        except StopIteration as end:
            return steps, end.value


def stop(training: Generator[TrainingStep, None, TrainedModel], after: int) -> list[TrainingStep]:
    steps = [next(training) for _ in range(after)]
    training.close()
    return steps


def weights_of(model: LlamaForCausalLM) -> bytes:
    return b"".join(tensor.numpy().tobytes() for tensor in model.state_dict().values())


@pytest.mark.slow
def test_resumed_training_is_bitwise_identical(tmp_path: Path) -> None:
    """Overfits four molecules, so that the best weights are those of an early step, before the checkpoint."""
    recipe = replace(RECIPE, steps=24, learning_rate=0.05)
    random_state = torch.get_rng_state()
    (tmp_path / "stopped").mkdir()
    steps, trained = finish(train(recipe, TRAINING[:4], HELD_OUT, tmp_path))
    assert torch.equal(torch.get_rng_state(), random_state)
    losses = {step.done: step.held_out for step in steps if step.held_out is not None}
    assert sorted(losses) == list(range(2, 25, 2))
    assert trained.held_out == min(losses.values()) == losses[trained.best_step] < losses[24]
    batch = script.held_out_batch(TOKENIZER, HELD_OUT)
    assert script.mean_loss(trained.model, [batch]) == pytest.approx(trained.held_out, abs=1e-6)

    checkpoint = trained.best_step + 2
    arguments = (recipe, TRAINING[:4], HELD_OUT, tmp_path / "stopped")
    first = stop(train(*arguments, checkpoint_every=checkpoint), checkpoint + 1)
    rest, resumed = finish(train(*arguments, resume=True))
    assert first[:checkpoint] + rest == steps
    assert (resumed.best_step, resumed.held_out) == (trained.best_step, trained.held_out)
    assert weights_of(resumed.model) == weights_of(trained.model)
    first_model, other = (script.new_model(replace(recipe, seed=seed), TOKENIZER) for seed in (0, 1))
    assert weights_of(first_model) != weights_of(other)


def test_checkpoint_of_other_training_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="leave --resume out"):
        next(train(RECIPE, TRAINING, HELD_OUT, tmp_path, resume=True))
    stop(train(RECIPE, TRAINING, HELD_OUT, tmp_path, checkpoint_every=1), 2)
    with pytest.raises(InputError, match="add --resume"):
        next(train(RECIPE, TRAINING, HELD_OUT, tmp_path))
    for recipe, molecules in ((replace(RECIPE, steps=8), TRAINING), (RECIPE, TRAINING[1:])):
        with pytest.raises(InputError, match="other options or data"):
            next(train(recipe, molecules, HELD_OUT, tmp_path, resume=True))


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "train.jsonl", map(row, SMILES))


def test_resumed_model_loads(tmp_path: Path, rows: Path, pine: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "model"
    threads = torch.get_num_threads()
    arguments = ["train-molecules", rows, "--output-dir", out, "--steps", 4, *OPTIONS, "--checkpoint-every"]
    arguments += [3, "--threads", threads + 1, "--json"]

    def interrupted(*args: Any, **options: Any) -> Generator[TrainingStep, None, None]:
        training = train(*args, **options)
        yield from (next(training) for _ in range(3))
        raise InterruptedError

    with monkeypatch.context() as patch, pytest.raises(InterruptedError):
        patch.setattr(script, "train", interrupted)
        pine(*arguments)
    assert pine(*arguments).status == 2  # a checkpoint without --resume
    outcome = pine(*arguments, "--resume")
    assert outcome.status == 0 and outcome.stderr.startswith("step 4 of 4: ")
    assert torch.get_num_threads() == threads
    report = outcome.json
    assert report["num_learned"] + report["num_held_out"] + report["num_left_out"] == len(SMILES)
    card = (out / "README.md").read_text(encoding="utf-8")
    assert f"| held-out loss | {report['held_out_loss']:.3f} nats" in card
    assert report["command"].split("FOLDER ")[1] in card and "--steps 4" in report["command"]
    assert not (out / script.CHECKPOINT).exists()
    engine = Engine.load(str(out))
    assert sum(weights.numel() for weights in engine.model.parameters()) == report["num_parameters"]
    assert pine(*arguments).status == 2  # a finished model


def test_unusable_data_folder_or_installation_is_refused(
    tmp_path: Path, rows: Path, pine: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = write_rows(tmp_path / "few.jsonl", map(row, SMILES[:3]))
    for data, out in ((few, tmp_path / "new"), (rows, few / "new")):
        assert pine("train-molecules", data, "--output-dir", out).status == 2
    monkeypatch.setattr(subcommand, "SCRIPT", tmp_path / "tools" / "train_molecules.py")
    outcome = pine("train-molecules", rows, "--output-dir", tmp_path / "new")
    assert outcome.status == 2 and "repository" in outcome.stderr and not (tmp_path / "new").exists()
