"""What the writing model is shown: prompts in random property order, with the molecules that answer them.

Which molecule comes at which place of the training, in which order, with which values and in which spelling
follows from the seed and the place alone, so that a resumed training sees what it would have seen.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import pstdev

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from pine_engine.molecules.chemistry import random_smiles
from pine_engine.molecules.rows import PROPERTIES, Molecule
from pine_engine.molecules.tokenizer import ANY_SPELLING, CANONICAL, END, START

NOT_SCORED = -100
"""Where a label has this value, torch's cross-entropy leaves the token out."""

DECIMALS = (2, 2, 2, 1)
"""Values are written with two decimals, and every fourth with one, since people do so."""


@dataclass(frozen=True)
class Batch:
    """Token ids and labels, (examples, tokens); labels are the ids of SMILES and end, else NOT_SCORED."""

    ids: Tensor
    labels: Tensor


class TrainingBatches:
    """An endless series of batches over the same molecules, each epoch in another order.

    jitter: standard deviation of the noise added to a value, in standard deviations of its property.
    spelling: share of examples that ask for any spelling and are answered with a random one.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerFast,
        molecules: Sequence[Molecule],
        *,
        seed: int,
        batch_size: int,
        jitter: float,
        spelling: float,
    ) -> None:
        self._tokenizer = tokenizer
        self._molecules = molecules
        self._seed = seed
        self._batch_size = batch_size
        self._spelling = spelling
        columns = zip(*(molecule.properties for molecule in molecules), strict=True)
        self._noise = [jitter * pstdev(values) for values in columns]
        self._epoch = cache(self._shuffled)

    def batch(self, step: int) -> Batch:
        """The examples of one step, counted from 0."""
        first = step * self._batch_size
        texts = [self._text(place) for place in range(first, first + self._batch_size)]
        return to_batch(self._tokenizer, texts)

    def _shuffled(self, epoch: int) -> list[int]:
        return random.Random(f"{self._seed}/epoch {epoch}").sample(
            range(len(self._molecules)), len(self._molecules)
        )

    def _text(self, place: int) -> tuple[str, str]:
        epoch, index = divmod(place, len(self._molecules))
        molecule = self._molecules[self._epoch(epoch)[index]]
        chance = random.Random(f"{self._seed}/example {place}")
        items = [
            item(name, f"{value + chance.gauss(0, noise):.{chance.choice(DECIMALS)}f}")
            for name, value, noise in zip(PROPERTIES, molecule.properties, self._noise, strict=True)
        ]
        chance.shuffle(items)
        if chance.random() >= self._spelling:
            return question(items), molecule.smiles
        return question(items, ANY_SPELLING), random_smiles(molecule.smiles, chance.randrange(2**31))


def item(name: str, value: str) -> str:
    """One property as the paper writes it."""
    return f"{name}*{value}* "


def question(items: Sequence[str], separator: str = CANONICAL) -> str:
    """What the model reads before it writes; the same tokens come out of the task's prompt."""
    return "".join((START, *items, separator))


def held_out_batch(tokenizer: PreTrainedTokenizerFast, molecules: Sequence[Molecule]) -> Batch:
    """The molecules as asked for in earnest: true values, canonical spelling, one random order each."""
    texts = []
    for molecule in molecules:
        items = [item(name, text) for name, text in zip(PROPERTIES, molecule.texts, strict=True)]
        random.Random(molecule.smiles).shuffle(items)
        texts.append((question(items), molecule.smiles))
    return to_batch(tokenizer, texts)


def to_batch(tokenizer: PreTrainedTokenizerFast, texts: Sequence[tuple[str, str]]) -> Batch:
    """Pairs of question and answer as one batch, padded behind, where a causal model never looks."""
    questions = tokenizer([asked for asked, _ in texts], add_special_tokens=False)["input_ids"]
    answers = tokenizer([f"{smiles}{END}" for _, smiles in texts], add_special_tokens=False)["input_ids"]
    width = max(len(asked) + len(answer) for asked, answer in zip(questions, answers, strict=True))
    ids = torch.full((len(texts), width), tokenizer.pad_token_id)
    labels = torch.full((len(texts), width), NOT_SCORED)
    for row, (asked, answer) in enumerate(zip(questions, answers, strict=True)):
        end = len(asked) + len(answer)
        ids[row, :end] = torch.tensor([*asked, *answer])
        labels[row, len(asked) : end] = torch.tensor(answer)
    return Batch(ids, labels)
