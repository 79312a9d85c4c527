"""On the embedded model, to the last bit: the order of the documents changes nothing for PINE and PCW."""

import pytest
import torch

from pine_engine.engine import Engine
from pine_engine.invariance import orders_to_try
from pine_engine.layout import TokenLayout
from pine_engine.prompt import Document
from pine_engine.tasks import get_task

pytestmark = pytest.mark.embedded

NEW_TOKENS = 16
SHUFFLES = 10

FACTS = [
    "The lighthouse at Cape Marrow was built in 1871 after three grain ships were lost on its shoals, "
    "and the lamp was first lit by the keeper's daughter.",
    "Copper turns green.",
    "The ferry to Tarn Island leaves at seven in the morning, except on Sundays.",
    "Most bees live alone and make no honey.",
    "The mill was sold twice.",
    "The river rises by two metres in spring, so that the lower road is closed until the middle of May.",
    "Ada Whitlock painted the town hall from her window every month.",
    "The bakery on Elm Street opens before sunrise.",
    "Nobody knows who carved the two stone foxes on either side of the church door.",
    "Salt lowers the freezing point of water.",
    "A school for sailors stood on the hill until the fire of 1904.",
    "The clock runs four minutes fast.",
]
QUESTIONS = {
    2: "When was the lighthouse built?",
    3: "When does the ferry leave?",
    5: "How often was the mill sold?",
    8: "Who painted the town hall?",
    12: "Why does the harbour stay open in January?",
}


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def engine(request: pytest.FixtureRequest, embedded_folder: str) -> Engine:
    return Engine.load(dtype=request.param)


def layout_of(engine: Engine, count: int) -> TokenLayout:
    documents = [Document(text) for text in FACTS[:count]]
    return engine.tokenize(
        get_task("retrieval_qa").prompt(engine.tokenizer, question=QUESTIONS[count], documents=documents)
    )


def shuffles(count: int, number: int) -> list[tuple[int, ...]]:
    """That many other orders, or all there are."""
    return orders_to_try(count, number, seed=count)[1:]


def logits_in(
    engine: Engine, layout: TokenLayout, methods: list[str], new_tokens: int
) -> dict[str, torch.Tensor]:
    """All logits of the suffix, and those of decoding that many tokens, by method."""
    result = engine.run(
        layout, methods=methods, max_new_tokens=new_tokens + 1, keep_logits=True, stop_at_end=False
    )
    for logits in result.logits.values():
        assert len(logits) == layout.suffix_length + new_tokens
    return result.logits


def test_documents_are_of_unequal_length(engine: Engine) -> None:
    lengths = layout_of(engine, 12).lengths
    assert len(set(lengths.tolist())) >= 8
    assert lengths.min() <= 10 and lengths.max() >= 35


@pytest.mark.parametrize("count", QUESTIONS)
def test_pine_and_pcw_do_not_change_by_one_bit(engine: Engine, count: int) -> None:
    layout = layout_of(engine, count)
    first = logits_in(engine, layout, ["pcw", "pine"], NEW_TOKENS)
    for order in shuffles(count, SHUFFLES):
        moved = logits_in(engine, layout.reorder(order), ["pcw", "pine"], NEW_TOKENS)
        for method, logits in moved.items():
            assert torch.equal(logits, first[method]), f"{method} changed in order {order}"


@pytest.mark.parametrize("count", QUESTIONS)
def test_control_vanilla_and_nia_change(engine: Engine, count: int) -> None:
    layout = layout_of(engine, count)
    first = logits_in(engine, layout, ["vanilla", "nia"], 0)
    for order in shuffles(count, 2):
        for method, logits in logits_in(engine, layout.reorder(order), ["vanilla", "nia"], 0).items():
            assert (logits - first[method]).abs().max() > 0.01
