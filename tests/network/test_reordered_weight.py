"""Output layer in the layout of oneDNN, against the original weight."""

from typing import Any, cast

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from pine_engine import Engine, TokenLayout
from pine_engine.network.batch_invariant_ops import (
    HAS_ONEDNN,
    cancelling_rows,
    cancelling_weight,
    onednn_gemm,
)
from pine_engine.network.reordered_weight import MIN_NUMEL, ReorderedWeight, is_exact, reorder_output_layer
from pine_engine.network.thread_tuner import torch_num_threads

pytestmark = pytest.mark.skipif(not HAS_ONEDNN, reason="this torch has no oneDNN")

LAYOUT = TokenLayout((1, 2, 3), ((4, 5, 6, 7), (8, 9), (10, 11, 12)), (13, 14, 15))


OTHER_SUMS = "oneDNN has another order of sums here, so the original weight is used"


def model(vocab_size: int = MIN_NUMEL // 64, dtype: torch.dtype = torch.float32) -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
    )
    found: Any = LlamaForCausalLM(config)
    return cast(LlamaForCausalLM, found.to(dtype))


@pytest.fixture
def multiplied(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of rows that reordered weights multiply."""
    counts: list[int] = []
    multiply = ReorderedWeight.multiply

    def count(weight: ReorderedWeight, inputs: Tensor) -> Tensor:
        counts.append(inputs.numel() // inputs.shape[-1])
        return multiply(weight, inputs)

    monkeypatch.setattr(ReorderedWeight, "multiply", count)
    return counts


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(("inputs", "outputs"), [(576, 7000), (63, 1001), (2048, 320)])
def test_reordered_weight_has_bits_of_original(inputs: int, outputs: int, threads: int) -> None:
    weight = cancelling_weight(outputs, inputs, torch.float32)
    rows = cancelling_rows(72, inputs, torch.float32)
    reordered = ReorderedWeight.of(weight)
    if not is_exact(reordered, weight):
        pytest.skip(OTHER_SUMS)
    with torch_num_threads(threads):
        for count in (2, 3, 4, 8, 24, 33, 72):
            assert torch.equal(reordered.multiply(rows[:count]), onednn_gemm(rows[:count], weight))


def test_only_decode_steps_use_reordered_weight(multiplied: list[int]) -> None:
    engine = Engine(model())
    if not engine._packed:
        pytest.skip(OTHER_SUMS)
    options: Any = {"max_new_tokens": 4, "stop_at_eos": False}
    multiplied.clear()
    engine.run(LAYOUT, methods=("vanilla", "pine"), **options)
    assert multiplied == [2, 2, 2]
    engine.run(LAYOUT, methods="pine", **options)
    assert multiplied == [2, 2, 2]  # a single row keeps the original weight


def test_reordered_weight_follows_changes_of_model() -> None:
    changed = model()
    engine = Engine(changed)
    before = engine.run(LAYOUT, methods=("vanilla", "pine"), max_new_tokens=3, return_logits=True)
    with torch.no_grad():
        changed.get_output_embeddings().weight.mul_(2)
    after = engine.run(LAYOUT, methods=("vanilla", "pine"), max_new_tokens=3, return_logits=True)
    assert torch.equal(after.logits["pine"], 2 * before.logits["pine"])


@pytest.mark.parametrize(
    "other", [model(vocab_size=MIN_NUMEL // 64 - 1), model(dtype=torch.bfloat16)], ids=["small", "bfloat16"]
)
def test_other_output_layers_are_not_reordered(other: LlamaForCausalLM) -> None:
    assert reorder_output_layer(other) == {}


def test_inexact_weight_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    found = model()
    assert reorder_output_layer(found).keys() <= {found.get_output_embeddings().weight}
    original = ReorderedWeight.multiply
    monkeypatch.setattr(
        ReorderedWeight, "multiply", lambda weight, rows: original(weight, rows) * (1 + 2**-23)
    )
    assert reorder_output_layer(found) == {}
