"""Training of the molecule model on tiny data: the same weights also after a stop; and its commands."""

import json
import math
import re
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM

from pine_engine.engine.engine import Engine
from pine_engine.errors import InputError
from pine_engine.molecules import training
from pine_engine.molecules.recipe import Recipe
from pine_engine.molecules.rows import read_molecules, split_halves
from pine_engine.molecules.tokenizer import build_tokenizer
from pine_engine.molecules.training import (
    CHECKPOINT,
    Trained,
    TrainingStep,
    mean_loss,
    new_model,
    train,
)
from pine_engine.molecules.training_batches import held_out_batch
from tests.support.commands import Run
from tests.support.molecule_rows import SMILES, molecule, row, write_rows

LEARNED = [molecule(smiles) for smiles in SMILES[:30]]
HELD_OUT = [molecule(smiles) for smiles in SMILES[40:46]]
SMALL = {"batch_size": 4, "hidden": 16, "intermediate": 32, "layers": 1, "heads": 2, "exam_every": 2}
RECIPE = Recipe(steps=9, **SMALL)


def finish(training: Generator[TrainingStep, None, Trained]) -> tuple[list[TrainingStep], Trained]:
    progress = []
    while True:
        try:
            progress.append(next(training))
        except StopIteration as end:
            return progress, end.value


def run(recipe: Recipe, folder: Path, **options: Any) -> tuple[list[TrainingStep], Trained]:
    return finish(train(recipe, LEARNED, HELD_OUT, folder, **options))


def same_weights(one: LlamaForCausalLM, other: LlamaForCausalLM) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(left, right) for left, right in pairs)


def test_a_training_that_was_stopped_and_resumed_gives_the_same_weights(tmp_path: Path) -> None:
    """It stops after step 7; the checkpoint is of step 6, and the best weights so far are in it."""
    (whole, stopped) = (tmp_path / name for name in ("whole", "stopped"))
    whole.mkdir()
    stopped.mkdir()
    progress, trained = run(RECIPE, whole)
    training = train(RECIPE, LEARNED, HELD_OUT, stopped, checkpoint_every=3)
    first = [next(training) for _ in range(7)]
    training.close()
    rest, resumed = run(RECIPE, stopped, resume=True, checkpoint_every=3)
    assert first[:6] + rest == progress
    assert [one.done for one in rest] == [7, 8, 9]
    assert same_weights(trained.model, resumed.model)
    assert (trained.best_step, trained.held_out) == (resumed.best_step, resumed.held_out)


def test_seeds_make_models_and_the_callers_random_numbers_are_left_alone(tmp_path: Path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    _, one = run(RECIPE, tmp_path)
    assert torch.equal(torch.rand(3), expected)
    _, again = run(RECIPE, tmp_path)
    _, other = run(Recipe(steps=9, seed=1, **SMALL), tmp_path)
    assert same_weights(one.model, again.model)
    assert not same_weights(new_model(RECIPE, 45), new_model(Recipe(steps=9, seed=1, **SMALL), 45))
    assert not same_weights(one.model, other.model)


def test_what_is_returned_has_the_lowest_held_out_loss(tmp_path: Path) -> None:
    """Four molecules are soon learned by heart, and then all others surprise the more."""
    recipe = Recipe(steps=24, learning_rate=0.05, **SMALL)
    progress, trained = finish(train(recipe, LEARNED[:4], HELD_OUT, tmp_path))
    found = {one.done: one.held_out for one in progress if one.held_out is not None}
    assert sorted(found) == list(range(2, 25, 2))
    assert trained.held_out == min(found.values()) < found[24]
    assert found[trained.best_step] == trained.held_out
    held_out_batches = [held_out_batch(build_tokenizer(), HELD_OUT)]
    assert mean_loss(trained.model, held_out_batches) == pytest.approx(trained.held_out, abs=1e-6)

    again = tmp_path / "again"
    again.mkdir()
    training = train(recipe, LEARNED[:4], HELD_OUT, again, checkpoint_every=trained.best_step + 2)
    for _ in range(trained.best_step + 2):
        next(training)
    training.close()
    _, resumed = finish(train(recipe, LEARNED[:4], HELD_OUT, again, resume=True))
    assert (resumed.best_step, resumed.held_out) == (trained.best_step, trained.held_out)
    assert same_weights(resumed.model, trained.model)


def test_training_learns_to_tell_molecules_by_their_properties(tmp_path: Path) -> None:
    """From guessing among all tokens to well below what is known without reading the question."""
    four = LEARNED[:4]
    progress, trained = finish(train(Recipe(steps=80, learning_rate=0.02, **SMALL), four, four, tmp_path))
    labels = held_out_batch(build_tokenizer(), four).labels
    shares = torch.unique(labels[labels >= 0], return_counts=True)[1] / (labels >= 0).sum()
    assert progress[0].loss > 0.9 * math.log(len(build_tokenizer()))
    assert trained.held_out < 0.3 * -(shares * shares.log()).sum()


def test_a_checkpoint_of_another_training_is_not_resumed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has no checkpoint to resume from; leave --resume out$"):
        next(train(RECIPE, LEARNED, HELD_OUT, tmp_path, resume=True))
    training = train(RECIPE, LEARNED, HELD_OUT, tmp_path, checkpoint_every=1)
    next(training), next(training)
    training.close()
    with pytest.raises(InputError, match=r"has a checkpoint .*; add --resume, or give another folder$"):
        next(train(RECIPE, LEARNED, HELD_OUT, tmp_path))
    for recipe, learned in ((Recipe(steps=8, **SMALL), LEARNED), (RECIPE, LEARNED[1:])):
        with pytest.raises(InputError, match="from a training with other options or data; give the same"):
            next(train(recipe, learned, HELD_OUT, tmp_path, resume=True))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"steps": 0}, "^steps is 0; give 1 or more$"),
        ({"layers": -1}, "^layers is -1; give 1 or more$"),
        ({"hidden": 12, "heads": 4}, "^4 heads do not divide a width of 12 into even parts; give .* of 8$"),
        ({"learning_rate": 0.0}, "^learning rate 0.0, jitter .* must be above 0"),
        ({"jitter": float("nan")}, "jitter nan"),
        ({"spelling": 1.5}, "spellings 1.5 must be .* from 0 to 1$"),
    ],
)
def test_a_model_that_cannot_be_is_refused(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Recipe(**{"steps": 1, **change})


# the commands


OPTIONS = [part for name, value in SMALL.items() for part in (f"--{name.replace('_', '-')}", value)]


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "train.jsonl", map(row, SMILES))


def test_the_commands_train_a_model_and_make_the_table_of_it(
    tmp_path: Path, rows: Path, pine: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "model"
    train_it = ["train-molecules", rows, "--out", out, "--steps", 4, *OPTIONS, "--checkpoint-every", 3]
    threads = torch.get_num_threads()
    train_it += ["--threads", threads + 1, "--json"]
    stop_after(monkeypatch, 3)
    with pytest.raises(InterruptedError):
        pine(*train_it)
    monkeypatch.undo()
    status, _, said = pine(*train_it)
    assert (status, said.count("add --resume")) == (2, 1)
    status, printed, said = pine(*train_it, "--resume")
    assert status == 0
    assert re.search(r"step 4 of 4: loss \d\.\d+, held out \d\.\d+ nats per token, 0 min left", said)
    report = json.loads(printed)
    halves = split_halves(read_molecules(rows).molecules)
    assert (report["num_learned"], report["num_left_out"]) == (len(halves.writing), len(halves.judging))
    card = (out / "README.md").read_text(encoding="utf-8")
    assert f"| held-out loss | {report['held_out_loss']:.3f} nats" in card
    assert "written for tests (CC0-1.0): `train.jsonl`, SHA-256" in card
    assert report["command"].startswith(
        "python -m pine_engine train-molecules train.jsonl --out FOLDER --steps 4"
    )
    assert report["command"] in card
    assert not (out / CHECKPOINT).exists()
    assert torch.get_num_threads() == threads
    # What was saved is what was measured.
    engine = Engine.load(str(out))
    assert sum(weights.numel() for weights in engine.model.parameters()) == report["num_parameters"]
    status, _, said = pine(*train_it)
    assert (status, said) == (2, f"pine_engine: {out} holds a finished model; give another folder\n")

    asked = write_rows(tmp_path / "asked.jsonl", map(row, ("CC(C)CO", "CC(C)CN", "CC(C)C#N")))
    judge_it = ["molecules", asked, "--predictor-data", rows, "--model", out, "--methods", "vanilla,pine"]
    judge_it += ["--orders", 4]
    status, printed, _ = pine(*judge_it, "--json")
    table = json.loads(printed)
    assert (status, table["requests"], table["orders"]) == (0, 3, 4)
    assert [(one["method"], one["written"]) for one in table["methods"]] == [("vanilla", 12), ("pine", 12)]
    assert table["methods"][1]["changed"] == 0
    status, printed, said = pine(*judge_it)
    assert "valid" in printed and "predictor" in printed
    assert "3 requests in 4 orders each; errors are of valid molecules alone" in said
    status, printed, said = pine("molecules", rows, "--predictor-data", rows, "--model", out)
    assert (status, printed) == (2, "")
    assert re.match(r"pine_engine: \d+ molecules of .* are in .* too, such as m-CO; request", said)


def stop_after(monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """The training breaks off behind that step, as if it were killed."""

    def broken(*given: Any, **options: Any) -> Generator[TrainingStep, None, None]:
        training = train(*given, **options)
        for _ in range(steps):
            yield next(training)
        raise InterruptedError

    monkeypatch.setattr(training, "train", broken)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--epochs", 0], "epochs is 0.0; give more than 0"),
        (["--batch-size", 0], "batch_size is 0; give 1 or more"),
    ],
)
def test_options_that_no_training_can_have_are_refused(
    options: list[object],
    sentence: str,
    tmp_path: Path,
    rows: Path,
    pine: Run,
) -> None:
    refused = pine("train-molecules", rows, "--out", tmp_path / "new", *options)
    assert refused == (2, "", f"pine_engine: {sentence}\n")
    assert not (tmp_path / "new").exists()


def test_data_too_small_to_hold_some_out_and_a_folder_that_is_a_file_are_refused(
    tmp_path: Path, rows: Path, pine: Run
) -> None:
    few = write_rows(tmp_path / "few.jsonl", map(row, SMILES[:3]))
    status, _, said = pine("train-molecules", few, "--out", tmp_path / "new")
    assert (status, said.count("has 3 different molecules, too few to hold some out")) == (2, 1)
    status, _, said = pine("train-molecules", rows, "--out", few / "new")
    assert (status, said.count("few.jsonl/new cannot be made: Not a directory")) == (2, 1)
