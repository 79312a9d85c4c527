"""Training of the shipped molecule model: a small Llama that generates SMILES for six requested properties.

    python -m tools.train_molecules DATA.jsonl --output-dir FOLDER

Recipe and data determine the weights bitwise, on the same machine and with the same number of threads.
"""

import hashlib
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from statistics import pstdev
from typing import Annotated, NamedTuple, cast

import torch
import typer
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from pine_engine.cli.options import Limit, as_command
from pine_engine.cli.output import CommandResult, print_note
from pine_engine.engine.engine import Engine
from pine_engine.errors import InputError
from pine_engine.lab.molecules.generate import generate_molecules, random_orders
from pine_engine.lab.molecules.request_rows import (
    PROPERTIES,
    Molecule,
    Part,
    parse_smiles,
    rdkit,
    read_molecules,
    split_molecules,
)
from pine_engine.models.checkpoint import quiet_transformers
from pine_engine.models.load import load
from pine_engine.network.thread_tuner import torch_num_threads


@dataclass(frozen=True)
class Recipe:
    """Options that determine the weights, apart from the data. The defaults are those of the shipped model.

    Attributes:
        steps: Number of optimizer steps.
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

    steps: int = 3590
    batch_size: int = 32
    learning_rate: float = 1.5e-3
    seed: int = 0
    hidden_size: int = 128
    intermediate_size: int = 384
    layers: int = 6
    heads: int = 4
    noise_std: float = 0.03
    random_smiles_prob: float = 0.5
    eval_every: int = 100


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
        tokenizer_object=tokenizer, bos_token=START, eos_token=END, pad_token=PADDING, unk_token=UNKNOWN,
        chat_template=CHAT_TEMPLATE, clean_up_tokenization_spaces=False,
    )  # fmt: skip


# Batches

IGNORE_INDEX = -100
"""Label that the cross-entropy of torch ignores."""

HELD_OUT_BATCH_SIZE = 64

DECIMALS = (2, 2, 2, 1)
"""One in four values has one decimal, the others have two."""

Batch = tuple[Tensor, Tensor]
"""Token ids and labels, both (examples, tokens). Labels are the ids of SMILES and end, else IGNORE_INDEX."""


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


def held_out_batches(tokenizer: PreTrainedTokenizerFast, molecules: Sequence[Molecule]) -> list[Batch]:
    """Return one example per molecule: exact values, canonical SMILES, one random order."""
    examples = []
    for molecule in molecules:
        items = [item(name, text) for name, text in zip(PROPERTIES, molecule.texts, strict=True)]
        random.Random(molecule.smiles).shuffle(items)
        examples.append((prompt(items), molecule.smiles))
    starts = range(0, len(examples), HELD_OUT_BATCH_SIZE)
    return [to_batch(tokenizer, examples[start : start + HELD_OUT_BATCH_SIZE]) for start in starts]


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
    return ids, labels


# Training

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


# Export

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


def train_molecules(
    data: Path,
    output_dir: Annotated[Path, typer.Option()],
    recipe: Recipe = Recipe(),
    threads: Limit = None,
) -> CommandResult:
    """Train a small model that generates molecules with requested properties.

    Args:
        data: JSONL file of molecules with six properties each.
        output_dir: Folder for the model.
        recipe: Options that determine the weights.
        threads: Number of threads of torch. Default: torch's number.
    """
    if (output_dir / WEIGHTS).exists():
        raise InputError(f"{output_dir} has a finished model. Give another folder.")
    output_dir.mkdir(parents=True, exist_ok=True)
    molecules, sources = read_molecules(data)
    split = split_molecules(molecules)
    with torch_num_threads(threads):
        trained = train(recipe, split["train"], split["held_out"], print_losses)
        save(trained, recipe, data, sources, split, output_dir)
    row = {"model": str(output_dir), "best_step": trained.best_step, "held_out_loss": trained.held_out}
    return CommandResult(row, [row])


def print_losses(step: int, loss: float, held_out: float) -> None:
    """Print the losses of a step."""
    print_note(f"step {step}: loss {loss:.3f}, held out {held_out:.3f} nats per token")


app = typer.Typer(add_completion=False)
app.command()(as_command(train_molecules))

if __name__ == "__main__":
    app()
