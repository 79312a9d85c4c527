"""The molecule model that is shipped: its card, its molecules, and that no order changes them."""

import itertools
import json
from pathlib import Path

import pytest
import torch

from pine_engine.engine import passes
from pine_engine.engine.engine import Engine
from pine_engine.methods.table import get_method
from pine_engine.models.load import SHIPPED
from pine_engine.molecules.chemistry import canonical_smiles
from pine_engine.molecules.generate import WrittenMolecule, request_layout, write_molecules
from pine_engine.molecules.rows import PROPERTIES, Molecule

ASSETS = Path(__file__).parents[2] / "assets"
FOLDER = SHIPPED / "molecules"
ALL_ORDERS = list(itertools.permutations(range(len(PROPERTIES))))


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine.load(str(FOLDER))


def page_example() -> Molecule:
    """What the example on the page asks for."""
    examples = json.loads((ASSETS / "examples.json").read_text(encoding="utf-8"))
    (example,) = (example for example in examples if example["task"] == "qm9")
    texts = {document["title"]: document["text"] for document in example["documents"]}
    return Molecule("page", "", tuple(texts[name] for name in PROPERTIES))


def written(engine: Engine, method: str, orders: list[tuple[int, ...]]) -> list[WrittenMolecule]:
    return write_molecules(engine, [page_example()], [orders], [method])


def test_the_model_is_small_and_its_card_says_what_it_is() -> None:
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 10e6
    card = (FOLDER / "README.md").read_text(encoding="utf-8")
    for words in ("QM9 (CC0", "| licence |", "| held-out loss | 0.", "| valid | 9", "train-molecules"):
        assert words in card
    assert not list(FOLDER.glob("*.pt"))


@pytest.mark.parametrize("method", ["vanilla", "pine", "pcw"])
def test_the_example_of_the_page_is_answered_with_a_molecule(engine: Engine, method: str) -> None:
    (answer,) = written(engine, method, ALL_ORDERS[:1])
    assert answer.smiles is not None and answer.smiles == canonical_smiles(answer.text)
    assert 5 <= len(answer.text) <= 30


def test_pine_writes_one_molecule_whatever_the_order_and_vanilla_several(engine: Engine) -> None:
    """After reading, every sixth of the 720 orders is the same to the last bit; of the molecules written then
    every fortieth is compared. All of them take two minutes."""
    layout = request_layout(engine, page_example())
    assert len(ALL_ORDERS) == 720
    with torch.inference_mode():
        read = [
            passes.prefill(engine.wirings, layout.reorder(order), get_method("pine"), room=1, rows_kept=1)[1]
            for order in ALL_ORDERS[::6]
        ]
    assert all(torch.equal(read[0], logits) for logits in read)
    some = ALL_ORDERS[::40]
    assert len({answer.text for answer in written(engine, "pine", some)}) == 1
    assert len({answer.text for answer in written(engine, "vanilla", some)}) > 1
