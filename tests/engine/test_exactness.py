"""On the embedded model, order-invariant methods are bitwise identical in any document order."""

import pytest
import torch

from pine_engine import TASKS, Document, Engine, sample_orders
from tests.engine.test_engine import INVARIANT, LOGITS
from tests.support.tiers import first_daily

FACTS = [
    "The lighthouse at Cape Marrow was built in 1871 after three grain ships were lost on its shoals, "
    "and the lamp was first lit by the keeper's daughter.",
    "Copper turns green.",
    "The ferry to Tarn Island leaves at seven in the morning, except on Sundays.",
    "The river rises by two metres in spring, so that the lower road is closed until the middle of May.",
]


@pytest.mark.parametrize(
    ("dtype", "count", "methods"),
    first_daily(
        [
            ("float32", 2, ["pine", "vanilla"]),
            *((dtype, 4, [*INVARIANT, "vanilla"]) for dtype in ("float32", "bfloat16")),
        ]
    ),
)
def test_embedded_model_is_invariant(embedded: Engine, dtype: str, count: int, methods: list[str]) -> None:
    engine = embedded if dtype == "float32" else Engine.load(dtype=dtype)
    documents = [Document(text, score=float(slot % 3)) for slot, text in enumerate(FACTS[:count])]
    prompt = TASKS["retrieval_qa"].prompt(engine, question="When does it leave?", documents=documents)
    layout = engine.tokenize(prompt)
    assert count == 2 or (layout.lengths.min() <= 10 and layout.lengths.max() >= 35)
    moved = layout.reorder(sample_orders(count, 1, seed=1)[1])
    expected, found = (engine.run(one, methods=methods, **LOGITS).logits for one in (layout, moved))
    for method in methods:
        assert torch.equal(found[method], expected[method]) == (method in INVARIANT), method
    assert (found["vanilla"] - expected["vanilla"]).abs().max() > 0.01
