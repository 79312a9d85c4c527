"""Training of a small Llama, of which the weights with the lowest held-out loss are kept."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from pine_engine.lab.molecules.request_rows import Molecule
from tools.molecules.batches import Batch, TrainingBatches, held_out_batches
from tools.molecules.recipe import Recipe
from tools.molecules.tokenizer import build_tokenizer

MAX_CONTEXT_LENGTH = 256
"""Tokens. Six properties and the longest SMILES of QM9 take about 85."""

WARMUP, FINAL_RATE = 0.05, 0.05
"""Fraction of the steps with a rising learning rate, and final fraction of the highest rate (cosine)."""

WEIGHT_DECAY, MAX_GRADIENT_NORM = 0.1, 1.0

OnStep = Callable[[int, float, float], None]
"""Function that is called at each evaluation: step, its loss and the held-out loss, in nats per token."""


class TrainedModel(NamedTuple):
    """Model with the lowest held-out loss, in nats per token, and the number of its step."""

    model: LlamaForCausalLM
    held_out: float
    best_step: int


def new_model(recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """Create a Llama with random weights, without a change of torch's global random state."""
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=recipe.hidden_size, num_hidden_layers=recipe.layers,
        intermediate_size=recipe.intermediate_size, num_attention_heads=recipe.heads,
        max_position_embeddings=MAX_CONTEXT_LENGTH, bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        return cast(LlamaForCausalLM, LlamaForCausalLM._from_config(config, attn_implementation="sdpa"))


def train(
    recipe: Recipe,
    molecules: Sequence[Molecule],
    held_out: Sequence[Molecule],
    on_evaluation: OnStep = lambda *_: None,
) -> TrainedModel:
    """Train a model, and return the weights with the lowest held-out loss."""
    tokenizer = build_tokenizer()
    model = new_model(recipe, tokenizer)
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), weight_decay=WEIGHT_DECAY)
    batches = TrainingBatches(tokenizer, molecules, recipe)
    validation = held_out_batches(tokenizer, held_out)
    best_loss, best_step, best_weights = math.inf, 0, dict[str, Tensor]()
    for step in range(1, recipe.steps + 1):
        loss = _step(model, optimizer, batches.batch(step - 1), _learning_rate(recipe, step - 1))
        if step % recipe.eval_every == 0 or step == recipe.steps:
            held_out_loss = mean_loss(model, validation)
            if held_out_loss < best_loss:
                best_loss, best_step = held_out_loss, step
                best_weights = {name: value.clone() for name, value in model.state_dict().items()}
            on_evaluation(step, loss, held_out_loss)
    model.load_state_dict(best_weights)
    return TrainedModel(model.eval().requires_grad_(False), best_loss, best_step)


@torch.no_grad()
def mean_loss(model: PreTrainedModel, batches: Sequence[Batch]) -> float:
    """Return the mean cross-entropy over all labeled tokens, in nats."""
    total, count = 0.0, 0
    for batch in batches:
        labeled = int((batch[1][:, 1:] >= 0).sum())
        total += _loss(model, batch).item() * labeled
        count += labeled
    return total / count


def _step(model: LlamaForCausalLM, optimizer: torch.optim.Optimizer, batch: Batch, rate: float) -> float:
    for group in optimizer.param_groups:
        group["lr"] = rate
    loss = _loss(model, batch)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), MAX_GRADIENT_NORM)
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def _loss(model: PreTrainedModel, batch: Batch) -> Tensor:
    ids, labels = batch
    logits = model(input_ids=ids, use_cache=False).logits[:, :-1]
    return nn.functional.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten())


def _learning_rate(recipe: Recipe, done: int) -> float:
    warmup = max(1, round(WARMUP * recipe.steps))
    if done < warmup:
        return recipe.learning_rate * (done + 1) / warmup
    part = (done - warmup) / max(1, recipe.steps - warmup)
    return recipe.learning_rate * (FINAL_RATE + (1 - FINAL_RATE) * (1 + math.cos(math.pi * part)) / 2)
