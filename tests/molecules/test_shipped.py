"""The shipped molecule model: card, valid answers, and invariance to the order of the properties."""

import itertools
import json
from pathlib import Path

import pytest

from pine_engine import Engine
from pine_engine.models.load import SHIPPED
from pine_engine.molecules.chemistry import canonical_smiles
from pine_engine.molecules.generate import generate_molecules
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


@pytest.mark.parametrize(("method", "changes"), [("vanilla", True), ("pine", False)])
def test_page_example_depends_on_order_under_vanilla_only(engine: Engine, method: str, changes: bool) -> None:
    texts = {answer.text for answer in generate(engine, method, ALL_ORDERS[::90])}
    assert (len(texts) > 1) == changes
