"""Generation of molecules for requested properties, in several orders of the properties."""

import random
from collections.abc import Callable, Sequence

from pine_engine.engine.engine import Engine
from pine_engine.engine.generation import generate_batch
from pine_engine.lab.molecules.request_rows import PROPERTIES, GeneratedMolecule, Molecule, canonical_smiles
from pine_engine.prompts.orders import Order, distinct_orders
from pine_engine.prompts.tasks import TASKS
from pine_engine.rows.documents import Document

TASK = TASKS["qm9"]
BATCH_SIZE = 64


def random_orders(molecule: Molecule, count: int, seed: int) -> list[Order]:
    """Return `count` distinct random orders of the properties, seeded per molecule."""
    return distinct_orders(len(PROPERTIES), count, random.Random(f"{seed}/{molecule.smiles}"))


def generate_molecules(
    engine: Engine,
    requests: Sequence[Molecule],
    orders: Sequence[Sequence[Order]],
    methods: Sequence[str],
    on_generated: Callable[[str], None] = lambda _: None,
) -> list[GeneratedMolecule]:
    """Generate one molecule greedily per method, request and order of the properties of this request."""
    layouts = []
    for molecule in requests:
        documents = [Document(text, name) for name, text in zip(PROPERTIES, molecule.texts, strict=True)]
        layouts.append(engine.tokenize(TASK.prompt(engine.tokenizer, documents=documents)))
    inputs = [
        (request, turn, order)
        for request, request_orders in enumerate(orders)
        for turn, order in enumerate(request_orders)
    ]
    prompts = [layouts[request].reorder(order) for request, _, order in inputs]
    generated: list[GeneratedMolecule] = []
    for method in methods:
        texts = {}
        for index, answer in generate_batch(
            engine, prompts, method=method, max_new_tokens=TASK.max_new_tokens, batch_size=BATCH_SIZE
        ):
            texts[index] = answer.text
            on_generated(method)
        generated += [
            GeneratedMolecule(method, request, turn, order, texts[index], canonical_smiles(texts[index]))
            for index, (request, turn, order) in enumerate(inputs)
        ]
    return generated
