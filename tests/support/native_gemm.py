"""Simulation of a processor that multiplies in half precision, with other sums for other numbers of rows."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from pine_engine.network import batch_invariant_ops as ops
from pine_engine.network.thread_tuner import torch_num_threads

ROWS_OF_ONE_KERNEL = 4
"""Maximum number of rows of the first kernel, fewer than on processors, so that tests need fewer rows."""


def gemm_by_rows(rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return a linear layer of rows (..., in), with 1 to 3 parts of each sum by the number of rows."""
    num_rows = rows.numel() // rows.shape[-1]
    num_parts = 1 if num_rows == 1 else 2 if num_rows <= ROWS_OF_ONE_KERNEL else 3
    fp32_rows, fp32_weight = rows.float(), weight.float()
    with torch_num_threads(1):
        # One sum after the other, so that the result for a row depends on nothing else.
        parts = zip(
            fp32_rows.tensor_split(num_parts, -1), fp32_weight.tensor_split(num_parts, -1), strict=True
        )
        total = sum((_rowwise(part, of_weight) for part, of_weight in parts), torch.zeros(()))
    return (total if bias is None else total + bias.float()).to(rows.dtype)


def _rowwise(rows: Tensor, weight: Tensor) -> Tensor:
    return ops.onednn_gemm(functional.pad(rows, (0, 0, 0, 1)).contiguous(), weight.contiguous(), None)[
        ..., :-1, :
    ]


def skip_unless_batch_invariant(dtype: torch.dtype) -> None:
    """Skip a test of batches of any size, which another processor may not have in half precision."""
    if not ops.is_batch_invariant(dtype, torch.device("cpu")):
        pytest.skip("a row depends on its index in the GEMMs of this processor, so the batch size is fixed")


class _Functional:
    """The module torch.nn.functional with another GEMM in half precision."""

    def __init__(self, gemm: Callable[..., Tensor]) -> None:
        self._gemm = gemm

    def linear(self, rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        gemm = self._gemm if rows.dtype in ops.HALF_PRECISION else functional.linear
        return gemm(rows, weight, bias)

    def __getattr__(self, name: str) -> Any:
        return getattr(functional, name)


def simulate_native_gemm(
    monkeypatch: pytest.MonkeyPatch, gemm: Callable[..., Tensor] = gemm_by_rows, *, in_blocks: bool = True
) -> None:
    """Compute linear layers as on a processor with such a GEMM; without `in_blocks`, of all rows at once."""
    monkeypatch.setattr(ops, "multiplies_in", lambda _: True)
    monkeypatch.setattr(ops, "functional", _Functional(gemm))
    # Results of the probe belong to one GEMM.
    monkeypatch.setattr(ops, "block_gemm_is_batch_invariant", ops.block_gemm_is_batch_invariant.__wrapped__)
    if not in_blocks:
        monkeypatch.setattr(ops, "_block_gemm", lambda rows, weight, bias, _: gemm(rows, weight, bias))
