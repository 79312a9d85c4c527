"""Batched GEMMs of attention: the result of one head is bitwise identical in every batch of heads.

MKL computes a GEMM with a single column by other instructions alone than in a batch, and so may other
libraries with a single row. So `batched_gemm` has two of both. The rest depends on the number of threads,
which `decode_attention_threads` limits.
"""

from functools import cache

import torch
from torch import Tensor
from torch.nn import functional

from pine_engine.network.thread_tuner import torch_num_threads

PROBE_KEYS, PROBE_SEQUENCES = (1, 2, 17, 100, 700), (1, 2, 3, 4)
"""Batched GEMMs that test decode attention: numbers of keys, and of sequences in the batch."""


def batched_gemm(rows: Tensor, columns: Tensor, added: Tensor | None = None) -> Tensor:
    """Return rows (..., n, k) @ columns (..., k, m), with zeros beside a single row or column.

    `added` (..., n, m) is added to the result.
    """
    num_rows, num_columns = rows.shape[-2], columns.shape[-1]
    if num_rows != 1 and num_columns != 1:
        return rows @ columns if added is None else torch.baddbmm(added, rows, columns)
    more_rows, more_columns = int(num_rows == 1), int(num_columns == 1)
    padded_rows = functional.pad(rows, (0, 0, 0, more_rows))
    padded_columns = functional.pad(columns.mT, (0, 0, 0, more_columns)).mT if more_columns else columns
    padded_added = None if added is None else functional.pad(added, (0, more_columns, 0, more_rows))
    result = batched_gemm(padded_rows, padded_columns, padded_added)
    return result[..., :num_rows, :num_columns].contiguous()


def decode_attention_threads(query: Tensor, key: Tensor) -> int | None:
    """Return 1 if all threads would make a sequence of a decode step depend on the others; else None.

    Shape:
        query: (B, H, Q, head_dim). key: (B, G, Q, head_dim). Q > 1 is no decode step.
    """
    threads = torch.get_num_threads()
    if threads == 1 or query.shape[2] > 1 or query.device.type != "cpu":
        return None
    dtype = torch.promote_types(query.dtype, torch.float32)
    num_kv_heads = key.shape[1]
    shape = (num_kv_heads, query.shape[1] // num_kv_heads, query.shape[3])
    return None if _is_batch_invariant(*shape, dtype, threads) else 1


@cache
def _is_batch_invariant(
    num_kv_heads: int, num_queries: int, head_dim: int, dtype: torch.dtype, threads: int
) -> bool:
    """Check whether the batched GEMMs of decode attention are bitwise identical in every batch.

    MKL splits a GEMM between threads if a batch has fewer GEMMs than threads. The affected shapes differ
    between processors. `num_queries` is per key head, and `num_kv_heads` per sequence.
    """
    generator = torch.Generator().manual_seed(0)
    num_heads = num_kv_heads * max(PROBE_SEQUENCES)

    def normal(*shape: int) -> Tensor:
        return torch.randn(num_heads, *shape, generator=generator, dtype=dtype)

    # Sums of two halves that cancel: what remains is rounding, which the order of the sum changes.
    half, vectors = normal(num_queries, head_dim // 2), normal(max(PROBE_KEYS), head_dim // 2)
    query, vectors = torch.cat((half, -half), dim=-1), torch.cat((vectors, vectors), dim=-1)

    def attend(num_keys: int, heads: int) -> tuple[Tensor, Tensor, Tensor]:
        keys = vectors[:heads, :num_keys]
        twice = keys.repeat(1, 2, 1)
        weights = keys[:, :, :1].mT.expand(-1, num_queries, -1)
        weights = torch.cat((weights, -weights), dim=-1)
        weighted = batched_gemm(weights, twice)
        return batched_gemm(query[:heads], keys.mT), weighted, batched_gemm(weights, twice, weighted)

    for num_keys in PROBE_KEYS:
        with torch_num_threads(1):
            expected = attend(num_keys, num_heads)
        for heads in (num_kv_heads * num_sequences for num_sequences in PROBE_SEQUENCES):
            with torch_num_threads(threads):
                results = attend(num_keys, heads)
            if not all(torch.equal(one, whole[:heads]) for one, whole in zip(results, expected, strict=True)):
                return False
    return True
