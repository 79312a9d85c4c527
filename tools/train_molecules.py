"""Training of the shipped molecule model: a small Llama that generates SMILES for six requested properties.

`python -m pine_engine train-molecules` runs this script. Each step depends on the weights, the optimizer
state, the recipe and the step number only, all of which are in the checkpoint. A resumed training therefore
ends with weights that are bitwise identical to those of an uninterrupted one, on the same machine and with
the same number of threads.
"""

import hashlib
import json
import math
import os
import random
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, astuple, dataclass
from functools import cache
from pathlib import Path
from statistics import pstdev
from typing import Any, cast

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from pine_engine.cli.train_molecules import Recipe
from pine_engine.engine.engine import Engine
from pine_engine.errors import InputError
from pine_engine.models.checkpoint import quiet_transformers
from pine_engine.models.load import load
from pine_engine.molecules.chemistry import parse_smiles, rdkit
from pine_engine.molecules.generate import generate_molecules, random_orders
from pine_engine.molecules.request_rows import PROPERTIES, Molecule, Part

# Tokenizer

UNKNOWN, START, END, PADDING = "<unk>", "<s>", "</s>", "<pad>"
CANONICAL, ANY_SPELLING = "<smiles>", "<spelling>"
"""Separators before the SMILES: canonical, or any other spelling. Only training uses the second one."""

ITEM_END = "* "
CHARACTERS = "0123456789.-+* CNOFHcno[]()=#/\\@"
CHAT_TEMPLATE = (
    f"{START}{{% for message in messages %}}{{{{ message['content'] }}}}{{% endfor %}}"
    f"{{% if add_generation_prompt %}}{CANONICAL}{{% endif %}}"
)


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Build the tokenizer: one token per property name and per character of numbers and SMILES.

    Numbers are truncated after the second decimal, so that the model cannot identify molecules by the last
    digits. A prompt is a start token, six items such as `gap*7.86* `, and a separator.
    """
    control = (UNKNOWN, START, END, PADDING, CANONICAL, ANY_SPELLING)
    names = [f"{name}*" for name in PROPERTIES]
    vocabulary = {token: index for index, token in enumerate([*control, *names, ITEM_END, *CHARACTERS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.Replace(Regex(r"(?<=\.\d\d)\d+"), "")
    pattern = rf"(?:{'|'.join(PROPERTIES)})\*|\* |[\s\S]"
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in control])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=START,
        eos_token=END,
        pad_token=PADDING,
        unk_token=UNKNOWN,
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


# Batches

IGNORE_INDEX = -100
"""Label that the cross-entropy of torch ignores."""

DECIMALS = (2, 2, 2, 1)
"""One in four values has one decimal, the others have two."""


@dataclass(frozen=True)
class Batch:
    """Examples with labels.

    Shape:
        ids: (examples, tokens). labels: (examples, tokens), ids of SMILES and end, else IGNORE_INDEX.
    """

    ids: Tensor
    labels: Tensor


class TrainingBatches:
    """Batches of random examples. Each example depends on the recipe and its index only."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerFast, molecules: Sequence[Molecule], recipe: Recipe
    ) -> None:
        self._tokenizer, self._molecules, self._recipe = tokenizer, molecules, recipe
        columns = zip(*(molecule.properties for molecule in molecules), strict=True)
        self._noise_std = [recipe.noise_std * pstdev(values) for values in columns]
        self._epoch = cache(self._shuffle)

    def batch(self, step: int) -> Batch:
        """Return the examples of a step, counted from 0."""
        first = step * self._recipe.batch_size
        return to_batch(
            self._tokenizer, [self._example(index) for index in range(first, first + self._recipe.batch_size)]
        )

    def _shuffle(self, epoch: int) -> list[int]:
        count = len(self._molecules)
        return random.Random(f"{self._recipe.seed}/epoch {epoch}").sample(range(count), count)

    def _example(self, index: int) -> tuple[str, str]:
        epoch, place = divmod(index, len(self._molecules))
        molecule = self._molecules[self._epoch(epoch)[place]]
        generator = random.Random(f"{self._recipe.seed}/example {index}")
        items = [
            item(name, f"{value + generator.gauss(0, std):.{generator.choice(DECIMALS)}f}")
            for name, value, std in zip(PROPERTIES, molecule.properties, self._noise_std, strict=True)
        ]
        generator.shuffle(items)
        if generator.random() >= self._recipe.random_smiles_prob:
            return prompt(items), molecule.smiles
        return prompt(items, ANY_SPELLING), random_smiles(molecule.smiles, generator.randrange(2**31))


def item(name: str, value: str) -> str:
    """Return one property as text, in the form of the paper."""
    return f"{name}*{value}{ITEM_END}"


def prompt(items: Sequence[str], separator: str = CANONICAL) -> str:
    """Return the text of a request. The task `qm9` of the engine gives the same tokens."""
    return "".join((START, *items, separator))


def random_smiles(smiles: str, seed: int) -> str:
    """Return a random spelling of a molecule. `seed` is 0 or more."""
    # RDKit treats 0 as "no seed".
    spellings = rdkit("Chem").MolToRandomSmilesVect(parse_smiles(smiles), 1, randomSeed=max(seed, 1))
    return str(spellings[0])


def held_out_batch(tokenizer: PreTrainedTokenizerFast, molecules: Sequence[Molecule]) -> Batch:
    """Return one example per molecule: exact values, canonical SMILES, one random order."""
    examples = []
    for molecule in molecules:
        items = [item(name, text) for name, text in zip(PROPERTIES, molecule.texts, strict=True)]
        random.Random(molecule.smiles).shuffle(items)
        examples.append((prompt(items), molecule.smiles))
    return to_batch(tokenizer, examples)


def to_batch(tokenizer: PreTrainedTokenizerFast, examples: Sequence[tuple[str, str]]) -> Batch:
    """Tokenize pairs of prompt and SMILES, padded on the right."""
    prompts = tokenizer([text for text, _ in examples], add_special_tokens=False)["input_ids"]
    answers = tokenizer([f"{smiles}{END}" for _, smiles in examples], add_special_tokens=False)["input_ids"]
    width = max(len(tokens) + len(answer) for tokens, answer in zip(prompts, answers, strict=True))
    ids = torch.full((len(examples), width), tokenizer.pad_token_id)
    labels = torch.full((len(examples), width), IGNORE_INDEX)
    for row, (tokens, answer) in enumerate(zip(prompts, answers, strict=True)):
        end = len(tokens) + len(answer)
        ids[row, :end] = torch.tensor([*tokens, *answer])
        labels[row, len(tokens) : end] = torch.tensor(answer)
    return Batch(ids, labels)


# Training

CHECKPOINT = "checkpoint.pt"
MAX_CONTEXT_LENGTH = 256
"""Tokens. Six properties and the longest SMILES of QM9 take about 85."""

WARMUP, FINAL_RATE = 0.05, 0.05
"""Fraction of the steps with a rising learning rate, and final fraction of the highest rate (cosine)."""

WEIGHT_DECAY = 0.1
MAX_GRADIENT_NORM = 1.0
HELD_OUT_BATCH_SIZE = 64


@dataclass(frozen=True)
class TrainingStep:
    """Progress after a step. Losses are in nats per token; held_out is None where it was not measured."""

    done: int
    loss: float
    held_out: float | None


@dataclass(frozen=True)
class TrainedModel:
    """Model with the lowest held-out loss, in nats per token, and the number of its step."""

    model: LlamaForCausalLM
    held_out: float
    best_step: int


def new_model(recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """Create a Llama with random weights, without a change of torch's global random state."""
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=recipe.hidden_size,
        intermediate_size=recipe.intermediate_size,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        max_position_embeddings=MAX_CONTEXT_LENGTH,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        return cast(LlamaForCausalLM, LlamaForCausalLM._from_config(config, attn_implementation="sdpa"))


def train(
    recipe: Recipe,
    molecules: Sequence[Molecule],
    held_out: Sequence[Molecule],
    folder: Path,
    *,
    checkpoint_every: int = 100,
    resume: bool = False,
) -> Generator[TrainingStep, None, TrainedModel]:
    """Train a model. Yields after each step and returns the model with the lowest held-out loss.

    Args:
        recipe: Settings of the training.
        molecules: Training molecules.
        held_out: Molecules for the held-out loss.
        folder: Folder of the checkpoint.
        checkpoint_every: Steps between two checkpoints.
        resume: Continue from the checkpoint in `folder`.

    Raises:
        InputError: There is a checkpoint and `resume` is False, or none, or one of another training.
    """
    tokenizer = build_tokenizer()
    model = new_model(recipe, tokenizer)
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), weight_decay=WEIGHT_DECAY)
    path = folder / CHECKPOINT
    data = [[astuple(molecule) for molecule in part] for part in (molecules, held_out)]
    fingerprint = hashlib.sha256(json.dumps([asdict(recipe), data]).encode()).hexdigest()
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
    batches = TrainingBatches(tokenizer, molecules, recipe)
    held_out_batches = [
        held_out_batch(tokenizer, held_out[first : first + HELD_OUT_BATCH_SIZE])
        for first in range(0, len(held_out), HELD_OUT_BATCH_SIZE)
    ]
    while done < recipe.steps:
        loss = _step(model, optimizer, batches.batch(done), _learning_rate(recipe, done))
        done += 1
        held_out_loss = None
        if done % recipe.eval_every == 0 or done == recipe.steps:
            held_out_loss = mean_loss(model, held_out_batches)
            if held_out_loss < best_loss:
                best_step, best_loss, best = done, held_out_loss, _copy(model)
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
            torch.save(state, path.with_suffix(".tmp"))
            os.replace(path.with_suffix(".tmp"), path)
        yield TrainingStep(done, loss, held_out_loss)
    model.load_state_dict(best)
    return TrainedModel(model.eval().requires_grad_(False), best_loss, best_step)


def run_with_progress(
    training: Generator[TrainingStep, None, TrainedModel], steps: int, report: Callable[[str], None]
) -> TrainedModel:
    """Run a training to its end and report losses and remaining time at each held-out measurement."""
    losses: list[float] = []
    start, count = time.perf_counter(), 0
    while True:
        try:
            step = next(training)
        except StopIteration as end:
            return cast(TrainedModel, end.value)
        losses.append(step.loss)
        count += 1
        if step.held_out is not None:
            remaining_s = (time.perf_counter() - start) / count * (steps - step.done)
            report(
                f"step {step.done} of {steps}: loss {sum(losses) / len(losses):.3f}, held out "
                f"{step.held_out:.3f} nats per token, {remaining_s / 60:.0f} min left"
            )
            losses.clear()


@torch.no_grad()
def mean_loss(model: PreTrainedModel, batches: Sequence[Batch]) -> float:
    """Return the mean cross-entropy over all labeled tokens, in nats."""
    total, count = 0.0, 0
    for batch in batches:
        labeled = int((batch.labels[:, 1:] >= 0).sum())
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
    logits = model(input_ids=batch.ids, use_cache=False).logits[:, :-1]
    return nn.functional.cross_entropy(logits.flatten(0, 1), batch.labels[:, 1:].flatten())


def _learning_rate(recipe: Recipe, done: int) -> float:
    warmup = max(1, round(WARMUP * recipe.steps))
    if done < warmup:
        return recipe.learning_rate * (done + 1) / warmup
    part = (done - warmup) / max(1, recipe.steps - warmup)
    return recipe.learning_rate * (FINAL_RATE + (1 - FINAL_RATE) * (1 + math.cos(math.pi * part)) / 2)


def _copy(model: LlamaForCausalLM) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


# Export

WEIGHTS = "model.safetensors"


def create_folder(folder: Path) -> None:
    """Create the output folder.

    Raises:
        InputError: The folder holds a finished model or cannot be created.
    """
    if (folder / WEIGHTS).exists():
        raise InputError(f"{folder} holds a finished model; give another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder} cannot be created: {error.strerror}; give another folder") from error


def save(
    trained: TrainedModel,
    recipe: Recipe,
    data: Path,
    sources: Sequence[str],
    split: dict[Part, list[Molecule]],
    folder: Path,
) -> dict[str, Any]:
    """Write model, tokenizer and model card, and remove the checkpoint.

    Returns:
        The facts of the model card, measured on the model as it is loaded from the folder.
    """
    with quiet_transformers():
        trained.model.half().save_pretrained(folder)
        build_tokenizer().save_pretrained(folder)
    loaded = load(str(folder), dtype="float32")
    # Before the engine patches the attention of the model.
    held_out_loss = mean_loss(loaded.model, [held_out_batch(build_tokenizer(), split["held_out"])])
    engine = Engine(loaded.model, loaded.tokenizer, stop_token_ids=loaded.stop_token_ids)
    orders = [random_orders(molecule, 1, recipe.seed) for molecule in split["held_out"]]
    generated = generate_molecules(engine, split["held_out"], orders, ["vanilla"])
    options = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in asdict(recipe).items())
    facts = {
        "recipe": asdict(recipe),
        "command": f"python -m pine_engine train-molecules {data.name} --output-dir FOLDER {options}",
        "data": data.name,
        "data_sha256": hashlib.sha256(data.read_bytes()).hexdigest(),
        "sources": sources,
        "num_learned": len(split["train"]),
        "num_held_out": len(split["held_out"]),
        "num_left_out": len(split["predictor"]),
        "num_parameters": sum(weights.numel() for weights in engine.model.parameters()),
        "size_bytes": (folder / WEIGHTS).stat().st_size,
        "best_step": trained.best_step,
        "held_out_loss": held_out_loss,
        "valid": sum(answer.smiles is not None for answer in generated) / len(generated),
    }
    (folder / "README.md").write_text(model_card(recipe, facts), encoding="utf-8")
    (folder / CHECKPOINT).unlink(missing_ok=True)
    return facts


def model_card(recipe: Recipe, facts: dict[str, Any]) -> str:
    """Return the model card as Markdown."""
    names = ", ".join(f"`{name}` ({unit})" for name, unit in PROPERTIES.items())
    epochs = recipe.steps * recipe.batch_size / facts["num_learned"]
    return f"""# A small model that generates molecules

Given six properties, it generates the SMILES of a molecule that should have them: {names}.
It exists to show the effect of the order of a prompt's parts on an answer, and for nothing else: an answer
may be an unstable or toxic molecule, or none at all.

    python -m pine_engine compare FILE.json --model FOLDER

where FILE.json holds `"task": "qm9"` and a document for each property, with the name as its title and the
value as its text. The model's input is `<s>gap*7.86* homo*-5.87* ...<smiles>`, the items in any order.

| | |
| --- | --- |
| architecture | Llama: {recipe.layers} layers, {recipe.heads} heads, width {recipe.hidden_size}, \
feed-forward {recipe.intermediate_size} |
| parameters | {facts["num_parameters"]:,}, saved as float16 ({facts["size_bytes"] / 1e6:.1f} MB) |
| data | {"; ".join(facts["sources"])}: `{facts["data"]}`, SHA-256 `{facts["data_sha256"]}` |
| license | that of the data, also for the weights |
| training data | {facts["num_learned"]:,} molecules: half of the file by a hash of the SMILES, less \
{facts["num_held_out"]:,} held out |
| excluded | the {facts["num_left_out"]:,} of the other half, for the predictor of properties |
| training | {recipe.steps:,} steps of {recipe.batch_size} examples ({epochs:.1f} epochs); the weights are \
those after step {facts["best_step"]:,}, with the lowest held-out loss |
| held-out loss | {facts["held_out_loss"]:.3f} nats per token of the canonical SMILES |
| valid | {facts["valid"]:.1%} of the {facts["num_held_out"]:,} held-out requests are answered with a \
molecule (greedy, vanilla attention) |

The loss covers the SMILES only. Properties have a new random order in each example and epoch, with a noise of
{recipe.noise_std:g} of their standard deviation, far below the precision of a prediction from a SMILES;
{recipe.random_smiles_prob:.0%} of the examples request any spelling and are answered with a random one.

Made with

    {facts["command"]}
"""
