"""The shipped molecule model: card, valid answers, and invariance to the order of the properties."""

import itertools
import json
from pathlib import Path

import pytest
import torch

from pine_engine import Engine
from pine_engine.engine import passes
from pine_engine.methods.table import get_method
from pine_engine.models.load import SHIPPED
from pine_engine.molecules.chemistry import canonical_smiles
from pine_engine.molecules.generate import generate_molecules, request_layout
from pine_engine.molecules.request_rows import PROPERTIES, GeneratedMolecule, Molecule

ASSETS = Path(__file__).parents[2] / "assets"
FOLDER = SHIPPED / "molecules"
ALL_ORDERS = list(itertools.permutations(range(len(PROPERTIES))))


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine.load(str(FOLDER))


def page_example() -> Molecule:
    """The request of the example on the page."""
    examples = json.loads((ASSETS / "examples.json").read_text(encoding="utf-8"))
    (example,) = (example for example in examples if example["task"] == "qm9")
    texts = {document["title"]: document["text"] for document in example["documents"]}
    return Molecule("page", "", tuple(texts[name] for name in PROPERTIES))


def generate(engine: Engine, method: str, orders: list[tuple[int, ...]]) -> list[GeneratedMolecule]:
    return generate_molecules(engine, [page_example()], [orders], [method])


def test_shipped_model_is_small_with_card() -> None:
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 10e6
    card = (FOLDER / "README.md").read_text(encoding="utf-8")
    for words in ("QM9 (CC0", "| licence |", "| held-out loss | 0.", "| valid | 9", "train-molecules"):
        assert words in card
    assert not list(FOLDER.glob("*.pt"))


@pytest.mark.parametrize("method", ["vanilla", "pine", "pcw"])
def test_shipped_model_answers_page_example(engine: Engine, method: str) -> None:
    (answer,) = generate(engine, method, ALL_ORDERS[:1])
    assert answer.smiles is not None and answer.smiles == canonical_smiles(answer.text)
    assert 5 <= len(answer.text) <= 30


def test_pine_molecule_is_invariant_to_order(engine: Engine) -> None:
    """Prefill logits of every 24th of the 720 orders, and answers of every 90th."""
    layout = request_layout(engine, page_example())
    assert len(ALL_ORDERS) == 720
    with torch.inference_mode():
        read = [
            passes.prefill(
                engine.patched_models,
                layout.reorder(order),
                get_method("pine"),
                reserved_tokens=1,
                logits_to_keep=1,
            )[1]
            for order in ALL_ORDERS[::24]
        ]
    assert all(torch.equal(read[0], logits) for logits in read)
    some = ALL_ORDERS[::90]
    assert len({answer.text for answer in generate(engine, "pine", some)}) == 1
    assert len({answer.text for answer in generate(engine, "vanilla", some)}) > 1
