"""Molecules written by a model for requested properties, in several orders of the properties."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pine_engine.engine.batch import answer_batch
from pine_engine.engine.engine import Engine
from pine_engine.molecules.chemistry import canonical_smiles
from pine_engine.molecules.rows import PROPERTIES, Molecule
from pine_engine.prompts.layout import TokenLayout
from pine_engine.prompts.prompt import Document
from pine_engine.prompts.tasks import get_task

TASK = get_task("qm9")
BATCH_SIZE = 64


@dataclass(frozen=True)
class WrittenMolecule:
    """What one method wrote for one request in one order of its properties.

    request: index of the molecule whose properties were asked for. turn: which of the request's orders this
    is, counted from 0. smiles: the canonical spelling of what was written, None if that is no molecule.
    """

    method: str
    request: int
    turn: int
    order: tuple[int, ...]
    text: str
    smiles: str | None


def request_layout(engine: Engine, molecule: Molecule) -> TokenLayout:
    """The tokens that ask for a molecule with these properties, in the order of PROPERTIES."""
    documents = [Document(text, name) for name, text in zip(PROPERTIES, molecule.texts, strict=True)]
    return engine.tokenize(TASK.prompt(engine.tokenizer, question="", documents=documents))


def random_orders(molecule: Molecule, count: int, seed: int) -> list[tuple[int, ...]]:
    """So many different orders of the properties, drawn for this molecule."""
    chance = random.Random(f"{seed}/{molecule.smiles}")
    orders: dict[tuple[int, ...], None] = {}
    while len(orders) < count:
        orders[tuple(chance.sample(range(len(PROPERTIES)), len(PROPERTIES)))] = None
    return list(orders)


def write_molecules(
    engine: Engine,
    requests: Sequence[Molecule],
    orders: Sequence[Sequence[tuple[int, ...]]],
    methods: Sequence[str],
    on_written: Callable[[str], None] = lambda _: None,
) -> list[WrittenMolecule]:
    """What every method writes, greedily, for every request in each of its orders; each is computed anew.

    orders: for each request those to try. on_written: called with the method's name after each molecule.
    """
    layouts = [request_layout(engine, molecule) for molecule in requests]
    tried = [
        (request, turn, order)
        for request, its_orders in enumerate(orders)
        for turn, order in enumerate(its_orders)
    ]
    prompts = [layouts[request].reorder(order) for request, _, order in tried]
    written: list[WrittenMolecule] = []
    for method in methods:
        answers = answer_batch(
            engine, prompts, method=method, max_new_tokens=TASK.max_new_tokens, batch_size=BATCH_SIZE
        )
        texts = {}
        for index, answer in answers:
            texts[index] = answer.text
            on_written(method)
        written += [
            WrittenMolecule(method, request, turn, order, texts[index], canonical_smiles(texts[index]))
            for index, (request, turn, order) in enumerate(tried)
        ]
    return written
