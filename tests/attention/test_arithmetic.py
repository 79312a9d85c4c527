"""Attention arithmetic: independence of the sizes of blocks."""

from typing import Any

import numpy as np
import pytest
import torch

from pine_engine import Engine, TokenLayout, TokenRange, TraceConfig
from pine_engine.attention import arithmetic, ops
from pine_engine.attention.blocks import build_blocks
from tests.engine.conftest import LAYOUT
from tests.support.families import TinyLlama

ROUNDING = 1e-6
"""Traces are float32, and a GEMM of a single head can round differently."""


@pytest.mark.parametrize("rows", [1, 5, 12])
def test_importance_is_bitwise_identical_for_any_block(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    layout = TokenLayout((5,), (tuple(range(3, 10)), tuple(range(4, 11)), tuple(range(5, 9))), (51,))
    blocks = build_blocks(layout, torch.device("cpu"))
    draw = torch.Generator().manual_seed(0)
    query = torch.randn(2, 2 * 7, 64, generator=draw)
    keys = torch.randn(2, len(blocks.document), 64, generator=draw)
    document = int((blocks.lengths == 7).nonzero()[0])
    expected = arithmetic.document_importance(query, keys, document, blocks, "mean")
    monkeypatch.setattr(arithmetic, "MIN_BLOCK_ROWS", rows)
    monkeypatch.setattr(arithmetic, "SCORE_BLOCK", 1)
    assert torch.equal(arithmetic.document_importance(query, keys, document, blocks, "mean"), expected)


@pytest.mark.parametrize("method", ["pine", "pine_input_order", "reassignment_only", "vanilla"])
def test_heads_of_long_prompts_are_bitwise_identical(
    method: str, tiny_llama: TinyLlama, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long prompt computes one head after the other."""
    ranges = tuple(TokenRange(1, head, 0, LAYOUT.num_tokens) for head in range(4))
    options: dict[str, Any] = {"max_new_tokens": 2, "return_logits": True, "trace": TraceConfig(ranges)}
    engine = Engine(tiny_llama())
    expected = engine.run(LAYOUT, methods=method, **options)
    monkeypatch.setattr(ops, "KEY_BLOCK", 1)
    monkeypatch.setattr(arithmetic, "MAX_SQUARE", 1)
    result = engine.run(LAYOUT, methods=method, **options)
    assert torch.equal(result.logits[method], expected.logits[method])
    weights = [one.traces[method].token_weights for one in (result, expected)]
    for one, other in zip(*weights, strict=True):
        np.testing.assert_allclose(one.weights, other.weights, rtol=0, atol=ROUNDING)
