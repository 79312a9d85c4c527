"""Training of the writing model: a small Llama, from random weights, in steps that can be resumed.

A step depends on the weights, the optimizer's state, the recipe and the number of the step, and on nothing
else; all of it is in the checkpoint. So a training that was killed and resumed gives the weights of one that
was not, to the last bit on the same machine with as many threads.
"""

import dataclasses
import hashlib
import json
import math
import os
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from pine_engine.errors import InputError
from pine_engine.molecules.recipe import Recipe
from pine_engine.molecules.rows import Molecule
from pine_engine.molecules.tokenizer import build_tokenizer
from pine_engine.molecules.training_batches import Batch, TrainingBatches, held_out_batch

CHECKPOINT = "checkpoint.pt"
MAX_CONTEXT = 256
"""In tokens; six properties and the longest SMILES of QM9 take about 85."""

WARMUP = 0.05
"""Share of the steps in which the learning rate rises; then it falls along a cosine to LAST_RATE of it."""

LAST_RATE = 0.05
WEIGHT_DECAY = 0.1
MAX_GRADIENT = 1.0
HELD_OUT_ROWS = 64
"""Rows of the held-out molecules that are computed at a time."""


@dataclass(frozen=True)
class TrainingStep:
    """After a step: how many are done, and the loss; held_out is None where it was not measured.

    loss: of the step's batch, held_out: of the held-out rows; both in nats per token of the SMILES.
    """

    done: int
    loss: float
    held_out: float | None


@dataclass(frozen=True)
class Trained:
    """The model of the lowest held-out loss, in nats per token, and after how many steps that was."""

    model: LlamaForCausalLM
    held_out: float
    best_step: int


def new_model(recipe: Recipe, vocabulary: int) -> LlamaForCausalLM:
    """A Llama of the recipe's size with random weights; the caller's random numbers are left alone."""
    tokenizer = build_tokenizer()
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=recipe.hidden,
        intermediate_size=recipe.intermediate,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        max_position_embeddings=MAX_CONTEXT,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        return cast(LlamaForCausalLM, LlamaForCausalLM._from_config(config, attn_implementation="sdpa"))


def train(
    recipe: Recipe,
    learned: Sequence[Molecule],
    held_out: Sequence[Molecule],
    folder: Path,
    *,
    checkpoint_every: int = 100,
    resume: bool = False,
) -> Generator[TrainingStep, None, Trained]:
    """Trains on `learned`; yields after every step, and returns the model with the lowest held-out loss.

    folder: where the checkpoint is kept. resume: go on with the one that is there.
    Raises InputError if there is one and resume was not asked for, or none, or one of another training.
    """
    tokenizer = build_tokenizer()
    model = new_model(recipe, len(tokenizer))
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), weight_decay=WEIGHT_DECAY)
    path = folder / CHECKPOINT
    fingerprint = _fingerprint(recipe, learned, held_out)
    done, best_step, best_loss, best = 0, 0, math.inf, _copy(model)
    if path.exists() != resume:
        raise InputError(
            f"{folder} has {'no' if resume else 'a'} checkpoint to resume from; "
            f"{'leave --resume out' if resume else 'add --resume, or give another folder'}"
        )
    if resume:
        saved = torch.load(path, weights_only=True)
        if saved["fingerprint"] != fingerprint:
            raise InputError(
                f"{path} is from a training with other options or data; give the same, or another folder"
            )
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        done, best_step, best_loss, best = (
            saved[name] for name in ("done", "best_step", "best_loss", "best")
        )
    batches = TrainingBatches(
        tokenizer,
        learned,
        seed=recipe.seed,
        batch_size=recipe.batch_size,
        jitter=recipe.jitter,
        spelling=recipe.spelling,
    )
    held_out_batches = [
        held_out_batch(tokenizer, held_out[first : first + HELD_OUT_ROWS])
        for first in range(0, len(held_out), HELD_OUT_ROWS)
    ]
    while done < recipe.steps:
        loss = _step(model, optimizer, batches.batch(done), _rate(recipe, done))
        done += 1
        found = None
        if done % recipe.exam_every == 0 or done == recipe.steps:
            found = mean_loss(model, held_out_batches)
            if found < best_loss:
                best_step, best_loss, best = done, found, _copy(model)
        if done % checkpoint_every == 0 and done < recipe.steps:
            state = {
                "fingerprint": fingerprint,
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "done": done,
                "best_step": best_step,
                "best_loss": best_loss,
                "best": best,
            }
            _save_whole(state, path)
        yield TrainingStep(done, loss, found)
    model.load_state_dict(best)
    return Trained(model.eval().requires_grad_(False), best_loss, best_step)


@torch.no_grad()
def mean_loss(model: PreTrainedModel, batches: Sequence[Batch]) -> float:
    """Mean cross-entropy over all tokens that are scored, in nats."""
    total, count = 0.0, 0
    for batch in batches:
        scored = int((batch.labels[:, 1:] >= 0).sum())
        total += _loss(model, batch).item() * scored
        count += scored
    return total / count


def _step(model: LlamaForCausalLM, optimizer: torch.optim.Optimizer, batch: Batch, rate: float) -> float:
    for group in optimizer.param_groups:
        group["lr"] = rate
    loss = _loss(model, batch)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), MAX_GRADIENT)
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def _loss(model: PreTrainedModel, batch: Batch) -> Tensor:
    logits = model(input_ids=batch.ids, use_cache=False).logits[:, :-1]
    return nn.functional.cross_entropy(logits.flatten(0, 1), batch.labels[:, 1:].flatten())


def _rate(recipe: Recipe, done: int) -> float:
    warmup = max(1, round(WARMUP * recipe.steps))
    if done < warmup:
        return recipe.learning_rate * (done + 1) / warmup
    part = (done - warmup) / max(1, recipe.steps - warmup)
    return recipe.learning_rate * (LAST_RATE + (1 - LAST_RATE) * (1 + math.cos(math.pi * part)) / 2)


def _fingerprint(recipe: Recipe, learned: Sequence[Molecule], held_out: Sequence[Molecule]) -> str:
    """Of everything that must be the same for a training to be resumed."""
    data = [[dataclasses.astuple(molecule) for molecule in part] for part in (learned, held_out)]
    return hashlib.sha256(json.dumps([dataclasses.asdict(recipe), data]).encode()).hexdigest()


def _copy(model: LlamaForCausalLM) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def _save_whole(state: dict[str, Any], path: Path) -> None:
    """The file is either the old one or the new one, whenever the process is killed."""
    scratch = path.with_suffix(".tmp")
    torch.save(state, scratch)
    os.replace(scratch, path)
