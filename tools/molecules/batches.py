"""Batches of training and held-out examples of the molecule model."""

import random
from collections.abc import Sequence
from functools import cache
from statistics import pstdev

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from pine_engine.lab.molecules.request_rows import PROPERTIES, Molecule, parse_smiles, rdkit
from tools.molecules.recipe import Recipe
from tools.molecules.tokenizer import ANY_SPELLING, CANONICAL, END, ITEM_END, START

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
