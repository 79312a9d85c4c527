"""Attention arithmetic: independence of the sizes of blocks."""

import pytest
import torch

from pine_engine import TokenLayout
from pine_engine.attention import arithmetic
from pine_engine.attention.blocks import build_blocks


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
