"""Batched GEMMs of attention are bitwise identical in every batch, also with a single row or column."""

import pytest
import torch
from hypothesis import example, given, strategies as st
from torch import Tensor

from pine_engine.network.batched_gemm import batched_gemm, decode_attention_threads
from pine_engine.network.thread_tuner import torch_num_threads

DTYPES = [torch.float32, torch.float64]


def normal(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@given(
    rows=st.sampled_from([0, 1, 2, 7, 8, 16]),
    columns=st.integers(0, 40),
    inner=st.sampled_from([16, 64, 128, 256]),
    dtype=st.sampled_from(DTYPES),
    has_added=st.booleans(),
)
@example(rows=0, columns=1, inner=64, dtype=torch.float32, has_added=False)
@example(rows=8, columns=1, inner=64, dtype=torch.float32, has_added=False)
@example(rows=1, columns=1, inner=256, dtype=torch.float32, has_added=True)
def test_batched_gemm_is_independent_of_the_batch(
    rows: int, columns: int, inner: int, dtype: torch.dtype, has_added: bool
) -> None:
    left, keys = normal(4, rows, inner, dtype=dtype), normal(4, columns, inner, dtype=dtype, seed=1)
    added = normal(4, rows, columns, dtype=dtype, seed=2) if has_added else None
    with torch_num_threads(1):
        expected = batched_gemm(left, keys.mT, added)
        for count in (1, 2, 3):
            part = None if added is None else added[:count]
            assert torch.equal(batched_gemm(left[:count], keys[:count].mT, part), expected[:count])
    exact = left.double() @ keys.double().mT + (0 if added is None else added.double())
    torch.testing.assert_close(expected.double(), exact, rtol=1e-4, atol=1e-4)
    assert expected.is_contiguous()


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_decode_attention_threads_keep_bitwise_identity(threads: int) -> None:
    shapes = ((1, 4, 16), (1, 7, 64), (2, 5, 20), (3, 3, 64), (1, 1, 64), (1, 8, 128))
    for num_kv_heads, group, head_dim in shapes:
        query, key = normal(4 * num_kv_heads, group, head_dim), normal(4 * num_kv_heads, 333, head_dim)
        for keys in (key, key[:, :1]):
            with torch_num_threads(1):
                expected = batched_gemm(query, keys.mT)
            with torch_num_threads(threads):
                shape = (1, num_kv_heads * group, 1, head_dim)
                used = decode_attention_threads(torch.empty(shape), torch.empty(1, num_kv_heads, 1, head_dim))
                for heads in range(num_kv_heads, 4 * num_kv_heads + 1, num_kv_heads):
                    with torch_num_threads(used):
                        result = batched_gemm(query[:heads], keys[:heads].mT)
                    assert torch.equal(result, expected[:heads])
    with torch_num_threads(threads):  # a prefill keeps them
        assert decode_attention_threads(torch.empty(1, 7, 5, 64), torch.empty(1, 1, 5, 64)) is None
