"""A certificate of a tiny model, as an object and as a file."""

import json
from pathlib import Path
from typing import Any

import pytest

from pine_engine import Document, Engine, OrderResult, Request, compare_orders, sample_orders
from pine_engine.invariance.certificate import Certificate, create_certificate, hash_logits

COMPARISON = Request(
    question="Which is green?",
    documents=[Document(text="red", title="Varo"), Document(text="green is Senna"), Document(text="white")],
    instruction="Answer.",
)
METHODS = ["vanilla", "sp", "pine", "pcw"]
ORDERS = sample_orders(3)
MAX_NEW_TOKENS = 4

VANILLA, PINE = ("results", 0), ("results", 2)
"""Paths of a method that depends on the order, and of one that does not."""

Changes = dict[tuple[str | int, ...], Any]
"""New values of a certificate by their path."""


@pytest.fixture(scope="session")
def engine(tiny: Path) -> Engine:
    return Engine.load(str(tiny))


@pytest.fixture(scope="session")
def rows(engine: Engine) -> list[OrderResult]:
    layout = COMPARISON.tokenize(engine)
    events = compare_orders(
        engine, layout, methods=METHODS, orders=ORDERS, max_new_tokens=MAX_NEW_TOKENS, trace=True
    )
    return [event for event in events if isinstance(event, OrderResult)]


@pytest.fixture(scope="session")
def certified(engine: Engine, rows: list[OrderResult]) -> Certificate:
    return create_certificate(
        engine,
        COMPARISON,
        orders=ORDERS,
        comparisons=[row.comparisons for row in rows],
        hashes=hash_logits(rows[0].result),
        seed=None,
        max_new_tokens=MAX_NEW_TOKENS,
        traced=True,
    )


@pytest.fixture
def file(certified: Certificate, tmp_path: Path) -> Path:
    path = tmp_path / "certificate.json"
    path.write_text(certified.model_dump_json(), encoding="utf-8")
    return path


def write_changes(file: Path, changes: Changes) -> Path:
    """Change values of a certificate file."""
    content = json.loads(file.read_text(encoding="utf-8"))
    for (*parents, key), value in changes.items():
        place = content
        for parent in parents:
            place = place[parent]
        place[key] = value
    file.write_text(json.dumps(content), encoding="utf-8")
    return file
