"""Attention kernels for GPUs, in Triton: the result of a query is bitwise identical wherever it is stored.

Sums and fused attention of torch's GPU kernels can depend on memory addresses, and on the number and the
indices of heads in a batch. Here, each program computes some queries of one key head in steps of fixed size,
and its operations depend on lengths alone. Imported on a GPU only; TRITON_INTERPRET=1 runs it on the CPU.

Rows of a program are queries of one key head: row r is query r // G2 of query head r % G2, where G2 is the
number of query heads per key head, rounded up to a power of 2. All exponentials have base 2.
"""

import inspect
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from pine_engine.attention.arithmetic import Ranking
from pine_engine.attention.blocks import BlockLayout
from pine_engine.methods.table import ImportanceKind
from pine_engine.network.registration import AttentionParams

MIN_SPLIT, MAX_SPLITS = 512, 64
"""Keys per part of a decode step's attention, at least, and largest number of parts."""

MAX_DECODE_ROWS = 16
"""Rows up to which the keys are split, because there are too few programs otherwise."""

RANK_CHUNK = 32  # documents that are compared with all others at a time

LOG2_E = tl.constexpr(1.4426950408889634)  # exponentials have base 2

VARYING = "num_queries num_keys split num_parts num_rows num_slots num_documents prefix_length"
VARYING += " documents_end num_tail tail_head starts_document"
"""Integers that differ between prompts: a kernel is not compiled again for multiples of 16."""


def _kernel(function: Any) -> Any:
    names = [name for name in VARYING.split() if name in inspect.signature(function).parameters]
    return triton.jit(function, do_not_specialize=names)


@triton.jit
def _load_query(q_ptr, rows_at, valid, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr):
    """Load queries (rows, BLOCK_D), whose first dimensions are at `rows_at`; zero where they do not exist."""
    dims = tl.arange(0, BLOCK_D)
    mask = valid[:, None] & (dims < HEAD_DIM)[None, :]
    return tl.load(q_ptr + rows_at[:, None] + dims[None, :], mask=mask, other=0.0)


@triton.jit
def _store_rows(out_ptr, rows_at, vectors, valid, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr):
    """Store vectors (rows, BLOCK_D) of the rows that exist."""
    dims = tl.arange(0, BLOCK_D)
    mask = valid[:, None] & (dims < HEAD_DIM)[None, :]
    tl.store(out_ptr + rows_at[:, None] + dims[None, :], vectors, mask=mask)


@triton.jit
def _empty_sums(BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr):
    """Return maximum, sum of exponentials (rows,) and weighted values (rows, BLOCK_D) of no columns."""
    maximum = tl.full([BLOCK_M], float("-inf"), tl.float32)
    return maximum, tl.zeros([BLOCK_M], tl.float32), tl.zeros([BLOCK_M, BLOCK_D], tl.float32)


@triton.jit
def _rotated(
    q_ptr, rows_offset, row_valid, delta, cos_ptr, sin_ptr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr
):
    """Return queries (rows, BLOCK_D) in pair layout, float32, rotated by `delta` positions."""
    dims = tl.arange(0, BLOCK_D)
    valid = row_valid[:, None] & (dims < HEAD_DIM)[None, :]
    query = _load_query(q_ptr, rows_offset, row_valid, HEAD_DIM, BLOCK_D).to(tl.float32)
    partner = tl.load(q_ptr + rows_offset[:, None] + (dims ^ 1)[None, :], mask=valid, other=0.0).to(
        tl.float32
    )
    angle = tl.abs(delta)[:, None] * (HEAD_DIM // 2) + (dims // 2)[None, :]
    cos = tl.load(cos_ptr + angle, mask=valid, other=0.0)
    sin = tl.load(sin_ptr + angle, mask=valid, other=0.0)
    sin = tl.where((delta < 0)[:, None], -sin, sin)
    return query * cos + tl.where((dims % 2 == 0)[None, :], -partner, partner) * sin


@triton.jit
def _scores(query, keys, scale, softcap, HAS_SOFTCAP: tl.constexpr):
    """Return scores (rows, columns) times log2(e), for keys (columns, BLOCK_D)."""
    scores = tl.dot(query, tl.trans(keys), input_precision="tf32x3") * scale
    if HAS_SOFTCAP:
        scores = softcap * (1 - 2 / (tl.exp2(scores / softcap * (2 * LOG2_E)) + 1))
    return scores * LOG2_E


@triton.jit
def _accumulate(scores, values, maximum, total, output):
    """Add values (columns, BLOCK_D), weighted by scores, to the sums of earlier columns."""
    new_maximum = tl.maximum(maximum, tl.max(scores, 1))
    reference = tl.where(new_maximum == float("-inf"), 0.0, new_maximum)
    weights = tl.exp2(scores - reference[:, None])
    shrink = tl.exp2(maximum - reference)
    total = total * shrink + tl.sum(weights, 1)
    output = output * shrink[:, None] + tl.dot(weights.to(values.dtype), values, input_precision="tf32x3")
    return new_maximum, total, output


@triton.jit
def _accumulate_sum(scores, maximum, total):
    """Add scores (rows, columns) to maximum and sum of the exponentials of earlier columns."""
    new_maximum = tl.maximum(maximum, tl.max(scores, 1))
    total = total * tl.exp2(maximum - new_maximum)
    total += tl.sum(tl.exp2(scores - new_maximum[:, None]), 1)
    return new_maximum, total


@triton.jit
def _query_rows(
    tile, kv_head, num_queries, BLOCK_M: tl.constexpr, GROUP: tl.constexpr, GROUP_2: tl.constexpr
):
    """Return query and head of each row of a tile, and whether they exist."""
    rows = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    query_index, of_group = rows // GROUP_2, rows % GROUP_2
    return query_index, kv_head * GROUP + of_group, (query_index < num_queries) & (of_group < GROUP)


@triton.jit
def _load_vectors(ptr, first, count, columns, BLOCK_D: tl.constexpr, HEAD_DIM: tl.constexpr):
    """Load vectors first .. (columns, BLOCK_D) of contiguous rows, zero from `count` on."""
    dims = tl.arange(0, BLOCK_D)
    valid = (columns < count)[:, None] & (dims < HEAD_DIM)[None, :]
    return tl.load(ptr + (first + columns)[:, None] * HEAD_DIM + dims[None, :], mask=valid, other=0.0)


@_kernel
def _attend_kernel(
    q_ptr, k_ptr, v_ptr, bias_ptr, out_ptr, max_ptr, total_ptr,
    q_head, q_row, k_head, k_row, v_head, v_row, num_queries, num_keys, split, scale, softcap,
    GROUP: tl.constexpr, GROUP_2: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    HAS_BIAS: tl.constexpr, HAS_SOFTCAP: tl.constexpr, IS_SPLIT: tl.constexpr,
):  # fmt: skip
    tile, kv_head, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    query_index, head, valid = _query_rows(tile, kv_head, num_queries, BLOCK_M, GROUP, GROUP_2)
    dims = tl.arange(0, BLOCK_D)
    is_dim = dims < HEAD_DIM
    rows_at = head.to(tl.int64) * q_head + query_index * q_row
    query = _load_query(q_ptr, rows_at, valid, HEAD_DIM, BLOCK_D)
    last = num_keys - num_queries + query_index  # last key that a row attends to
    end = tl.minimum(num_keys, num_keys - num_queries + (tile * BLOCK_M + BLOCK_M - 1) // GROUP_2 + 1)
    first = part * split
    end = tl.minimum(end, first + split)
    maximum, total, output = _empty_sums(BLOCK_M, BLOCK_D)
    k_ptr += kv_head.to(tl.int64) * k_head
    v_ptr += kv_head.to(tl.int64) * v_head
    for start in range(first, end, BLOCK_N):
        columns = start + tl.arange(0, BLOCK_N)
        is_key = (columns < end)[:, None] & is_dim[None, :]
        keys = tl.load(k_ptr + columns[:, None] * k_row + dims[None, :], mask=is_key, other=0.0)
        scores = _scores(query, keys, scale, softcap, HAS_SOFTCAP)
        if HAS_BIAS:
            bias = tl.load(bias_ptr + columns, mask=columns < end, other=0.0)
            scores += (bias * LOG2_E)[None, :]
        visible = (columns[None, :] <= last[:, None]) & (columns < end)[None, :]
        scores = tl.where(visible, scores, float("-inf"))
        values = tl.load(v_ptr + columns[:, None] * v_row + dims[None, :], mask=is_key, other=0.0)
        maximum, total, output = _accumulate(scores, values, maximum, total, output)
    num_heads = tl.num_programs(1) * GROUP
    place = (part * num_heads + head).to(tl.int64) * num_queries + query_index
    if IS_SPLIT:
        tl.store(max_ptr + place, maximum, mask=valid)
        tl.store(total_ptr + place, total, mask=valid)
        _store_rows(out_ptr, place * HEAD_DIM, output, valid, HEAD_DIM, BLOCK_D)
    else:
        _store_rows(out_ptr, place * HEAD_DIM, output / total[:, None], valid, HEAD_DIM, BLOCK_D)


@_kernel
def _merge_kernel(
    parts_ptr, max_ptr, total_ptr, out_ptr, num_parts, num_rows,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_P: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    parts, dims = tl.arange(0, BLOCK_P), tl.arange(0, BLOCK_D)
    is_dim = dims < HEAD_DIM
    maximum, total = -float("inf"), 0.0
    output = tl.zeros([BLOCK_D], tl.float32)
    for first in range(0, num_parts, BLOCK_P):
        part = first + parts
        valid = part < num_parts
        places = part * num_rows + row
        maxima = tl.load(max_ptr + places, mask=valid, other=-float("inf"))
        totals = tl.load(total_ptr + places, mask=valid, other=0.0)
        new_maximum = tl.maximum(maximum, tl.max(maxima, 0))
        weights = tl.exp2(maxima - new_maximum)
        shrink = tl.exp2(maximum - new_maximum)
        at = parts_ptr + places[:, None] * HEAD_DIM + dims[None, :]
        vectors = tl.load(at, mask=valid[:, None] & is_dim[None, :], other=0.0)
        total = total * shrink + tl.sum(totals * weights, 0)
        output = output * shrink + tl.sum(vectors * weights[:, None], 0)
        maximum = new_maximum
    tl.store(out_ptr + row * HEAD_DIM + dims, output / total, mask=is_dim)


@triton.jit
def _document_rows(
    tile, kv_head, tiles_ptr, slots_ptr, lengths_ptr,
    BLOCK_M: tl.constexpr, GROUP: tl.constexpr, GROUP_2: tl.constexpr,
):  # fmt: skip
    """Return the document of a tile; of each row offset, slot and head, and whether its query exists."""
    rows, document = tl.arange(0, BLOCK_M), tl.load(tiles_ptr + 2 * tile)
    offset, of_group = tl.load(tiles_ptr + 2 * tile + 1) + rows // GROUP_2, rows % GROUP_2
    valid = (offset < tl.load(lengths_ptr + document)) & (of_group < GROUP)
    return document, offset, tl.load(slots_ptr + document) + offset, kv_head * GROUP + of_group, valid


@_kernel
def _rank_kernel(
    q_ptr, k_ptr, out_ptr, parts_ptr, tiles_ptr, slots_ptr, lengths_ptr,
    num_slots, num_documents, scale,
    GROUP: tl.constexpr, GROUP_2: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, IS_MAX: tl.constexpr,
):  # fmt: skip
    tile, kv_head = tl.program_id(0), tl.program_id(1)
    own, _offset, slot_of_row, head, valid = _document_rows(
        tile, kv_head, tiles_ptr, slots_ptr, lengths_ptr, BLOCK_M, GROUP, GROUP_2
    )
    rows_at = (head.to(tl.int64) * num_slots + slot_of_row) * HEAD_DIM
    query = _load_query(q_ptr, rows_at, valid, HEAD_DIM, BLOCK_D)
    k_ptr += kv_head.to(tl.int64) * num_slots * HEAD_DIM
    maximum = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    # Maximum and sum of each document, read again when those of all documents are known.
    row = (tile * tl.num_programs(1) + kv_head).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    parts_ptr += row * num_documents * 2
    for document in range(0, num_documents):
        if document != own:
            slot, length = tl.load(slots_ptr + document), tl.load(lengths_ptr + document)
            of_document = tl.full([BLOCK_M], float("-inf"), tl.float32)
            reduced = tl.zeros([BLOCK_M], tl.float32)
            for start in range(0, length, BLOCK_N):
                columns = start + tl.arange(0, BLOCK_N)
                keys = _load_vectors(k_ptr, slot, length, columns, BLOCK_D, HEAD_DIM)
                scores = _scores(query, keys, scale, 0.0, False)
                scores = tl.where((columns < length)[None, :], scores, float("-inf"))
                of_document, reduced = _accumulate_sum(scores, of_document, reduced)
            new_maximum = tl.maximum(maximum, of_document)
            total = total * tl.exp2(maximum - new_maximum) + reduced * tl.exp2(of_document - new_maximum)
            maximum = new_maximum
            tl.store(parts_ptr + document * 2, of_document)
            tl.store(parts_ptr + document * 2 + 1, tl.full([BLOCK_M], 1.0, tl.float32) if IS_MAX else reduced)
    tl.debug_barrier()
    heads = tl.arange(0, GROUP_2)
    num_heads = tl.num_programs(1) * GROUP
    out_ptr += (tile * num_heads + kv_head * GROUP).to(tl.int64) * num_documents
    for document in range(0, num_documents):
        if document != own:
            of_document = tl.load(parts_ptr + document * 2)
            reduced = tl.load(parts_ptr + document * 2 + 1) * tl.exp2(of_document - maximum) / total
            reduced = tl.where(valid, reduced, 0.0)
            of_head = tl.sum(tl.reshape(reduced, [BLOCK_M // GROUP_2, GROUP_2]), 0)
            tl.store(out_ptr + heads * num_documents + document, of_head, mask=heads < GROUP)


@_kernel
def _place_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, cos_ptr, sin_ptr, tiles_ptr, slots_ptr, lengths_ptr, positions_ptr,
    starts_ptr, starts_document, starts_head, visible_ptr,
    num_slots, prefix_length, num_documents, scale, softcap,
    GROUP: tl.constexpr, GROUP_2: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HAS_SOFTCAP: tl.constexpr,
):  # fmt: skip
    tile, kv_head = tl.program_id(0), tl.program_id(1)
    own, offset, slot_of_row, head, valid = _document_rows(
        tile, kv_head, tiles_ptr, slots_ptr, lengths_ptr, BLOCK_M, GROUP, GROUP_2
    )
    rows_at = (head.to(tl.int64) * num_slots + slot_of_row) * HEAD_DIM
    position = tl.load(positions_ptr + slot_of_row, mask=valid, other=0)
    num_rows = prefix_length + num_slots
    k_ptr += kv_head.to(tl.int64) * num_rows * HEAD_DIM
    v_ptr += kv_head.to(tl.int64) * num_rows * HEAD_DIM
    maximum, total, output = _empty_sums(BLOCK_M, BLOCK_D)
    # The prefix is at its positions, like a document that starts at 0.
    for document in range(-1, num_documents):
        is_prefix = document < 0
        index = tl.maximum(document, 0)
        sees = is_prefix | (tl.load(visible_ptr + own * num_documents + index) != 0)
        if sees:
            length = tl.where(is_prefix, prefix_length, tl.load(lengths_ptr + index))
            first = tl.where(is_prefix, 0, prefix_length + tl.load(slots_ptr + index))
            starts_at = starts_ptr + own * starts_document + head * starts_head + index
            start_position = tl.load(starts_at, mask=valid & (document >= 0), other=0)
            query = _rotated(
                q_ptr, rows_at, valid, position - start_position, cos_ptr, sin_ptr, HEAD_DIM, BLOCK_D
            ).to(k_ptr.dtype.element_ty)
            is_own = document == own
            # Of its own document, a query sees the tokens up to itself.
            last = tl.where(is_own, offset, length - 1)
            for start in range(0, length, BLOCK_N):
                columns = start + tl.arange(0, BLOCK_N)
                keys = _load_vectors(k_ptr, first, length, columns, BLOCK_D, HEAD_DIM)
                scores = _scores(query, keys, scale, softcap, HAS_SOFTCAP)
                visible = (columns[None, :] <= last[:, None]) & (columns < length)[None, :]
                scores = tl.where(visible, scores, float("-inf"))
                values = _load_vectors(v_ptr, first, length, columns, BLOCK_D, HEAD_DIM)
                maximum, total, output = _accumulate(scores, values, maximum, total, output)
    _store_rows(out_ptr, rows_at, output / total[:, None], valid, HEAD_DIM, BLOCK_D)


@_kernel
def _document_scores_kernel(
    q_ptr, k_ptr, max_ptr, total_ptr, slots_ptr, lengths_ptr, num_queries, num_slots, num_documents,
    GROUP: tl.constexpr, GROUP_2: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    tile, kv_head, document = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    query_index, head, valid = _query_rows(tile, kv_head, num_queries, BLOCK_M, GROUP, GROUP_2)
    place = head.to(tl.int64) * num_queries + query_index
    query = _load_query(q_ptr, place * HEAD_DIM, valid, HEAD_DIM, BLOCK_D)
    k_ptr += kv_head.to(tl.int64) * num_slots * HEAD_DIM
    slot, length = tl.load(slots_ptr + document), tl.load(lengths_ptr + document)
    maximum = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    for start in range(0, length, BLOCK_N):
        columns = start + tl.arange(0, BLOCK_N)
        keys = _load_vectors(k_ptr, slot, length, columns, BLOCK_D, HEAD_DIM)
        scores = _scores(query, keys, 1.0, 0.0, False)
        scores = tl.where((columns < length)[None, :], scores, float("-inf"))
        maximum, total = _accumulate_sum(scores, maximum, total)
    tl.store(max_ptr + place * num_documents + document, maximum, mask=valid)
    tl.store(total_ptr + place * num_documents + document, total, mask=valid)


@triton.jit
def _importance(
    max_ptr, total_ptr, lengths, valid, index, maximum, total, IS_MAX: tl.constexpr, IS_MEAN: tl.constexpr
):
    """Return the importance of the documents `index` for a row whose maximum and sum of all are given."""
    weights = tl.exp2(tl.load(max_ptr + index, mask=valid, other=-float("inf")) - maximum)
    if IS_MAX:
        return weights / total
    importance = tl.load(total_ptr + index, mask=valid, other=0.0) * weights / total
    return importance / lengths.to(tl.float32) if IS_MEAN else importance


@_kernel
def _starts_kernel(
    max_ptr, total_ptr, importance_ptr, starts_ptr, lengths_ptr, num_documents, documents_end,
    BLOCK_B: tl.constexpr, CHUNK: tl.constexpr,
    IS_MAX: tl.constexpr, IS_MEAN: tl.constexpr, IS_REVERSED: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * num_documents
    index = tl.arange(0, BLOCK_B)
    valid = index < num_documents
    lengths = tl.load(lengths_ptr + index, mask=valid, other=1)
    max_ptr += row
    total_ptr += row
    maxima = tl.load(max_ptr + index, mask=valid, other=-float("inf"))
    maximum = tl.max(maxima, 0)
    totals = tl.load(total_ptr + index, mask=valid, other=0.0)
    total = tl.sum(totals * tl.exp2(maxima - maximum), 0)
    importance = _importance(max_ptr, total_ptr, lengths, valid, index, maximum, total, IS_MAX, IS_MEAN)
    tl.store(importance_ptr + row + index, importance, mask=valid)
    closeness = -importance if IS_REVERSED else importance
    before = tl.zeros([BLOCK_B], tl.int32)  # tokens of closer documents
    for first in range(0, num_documents, CHUNK):
        other = first + tl.arange(0, CHUNK)
        is_other = other < num_documents
        other_lengths = tl.load(lengths_ptr + other, mask=is_other, other=1)
        of_other = _importance(
            max_ptr, total_ptr, other_lengths, is_other, other, maximum, total, IS_MAX, IS_MEAN
        )
        if IS_REVERSED:
            of_other = -of_other
        is_equal = of_other[:, None] == closeness[None, :]
        is_closer = (of_other[:, None] > closeness[None, :]) | (is_equal & (other[:, None] < index[None, :]))
        is_closer = is_closer & is_other[:, None]
        before += tl.sum(tl.where(is_closer, other_lengths[:, None], 0), 0)
    tl.store(starts_ptr + row + index, documents_end - before - lengths, mask=valid)


@_kernel
def _suffix_kernel(
    q_ptr, k_ptr, v_ptr, tail_k_ptr, tail_v_ptr, out_ptr, max_ptr, total_ptr, cos_ptr, sin_ptr,
    slots_ptr, lengths_ptr, positions_ptr, starts_ptr,
    num_queries, num_slots, num_documents, num_tail, tail_head, softcap,
    GROUP: tl.constexpr, GROUP_2: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HAS_SOFTCAP: tl.constexpr,
):  # fmt: skip
    tile, kv_head, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    query_index, head, valid = _query_rows(tile, kv_head, num_queries, BLOCK_M, GROUP, GROUP_2)
    place = head.to(tl.int64) * num_queries + query_index
    position = tl.load(positions_ptr + query_index, mask=valid, other=0)
    maximum, total, output = _empty_sums(BLOCK_M, BLOCK_D)
    if part < num_documents:
        slot, length = tl.load(slots_ptr + part), tl.load(lengths_ptr + part)
        k_ptr += kv_head.to(tl.int64) * num_slots * HEAD_DIM
        v_ptr += kv_head.to(tl.int64) * num_slots * HEAD_DIM
        start_position = tl.load(starts_ptr + place * num_documents + part, mask=valid, other=0)
        delta = position - start_position
        query = _rotated(q_ptr, place * HEAD_DIM, valid, delta, cos_ptr, sin_ptr, HEAD_DIM, BLOCK_D)
        for start in range(0, length, BLOCK_N):
            columns = start + tl.arange(0, BLOCK_N)
            keys = _load_vectors(k_ptr, slot, length, columns, BLOCK_D, HEAD_DIM)
            scores = _scores(query, keys, 1.0, softcap, HAS_SOFTCAP)
            scores = tl.where((columns < length)[None, :], scores, float("-inf"))
            values = _load_vectors(v_ptr, slot, length, columns, BLOCK_D, HEAD_DIM)
            maximum, total, output = _accumulate(scores, values, maximum, total, output)
    else:
        tail_k_ptr += kv_head.to(tl.int64) * tail_head
        tail_v_ptr += kv_head.to(tl.int64) * tail_head
        query = _rotated(q_ptr, place * HEAD_DIM, valid, position, cos_ptr, sin_ptr, HEAD_DIM, BLOCK_D)
        last = num_tail - num_queries + query_index
        for start in range(0, num_tail, BLOCK_N):
            columns = start + tl.arange(0, BLOCK_N)
            keys = _load_vectors(tail_k_ptr, 0, num_tail, columns, BLOCK_D, HEAD_DIM)
            scores = _scores(query, keys, 1.0, softcap, HAS_SOFTCAP)
            visible = (columns[None, :] <= last[:, None]) & (columns < num_tail)[None, :]
            scores = tl.where(visible, scores, float("-inf"))
            values = _load_vectors(tail_v_ptr, 0, num_tail, columns, BLOCK_D, HEAD_DIM)
            maximum, total, output = _accumulate(scores, values, maximum, total, output)
    num_heads = tl.num_programs(1) * GROUP
    at = (part * num_heads).to(tl.int64) * num_queries + place
    tl.store(max_ptr + at, maximum, mask=valid)
    tl.store(total_ptr + at, total, mask=valid)
    _store_rows(out_ptr, at * HEAD_DIM, output, valid, HEAD_DIM, BLOCK_D)


@dataclass(frozen=True)
class DocumentTables:
    """Documents in block order, int32: first slots (D,), lengths (D,), and the tiles of a head's queries."""

    slots: Tensor
    lengths: Tensor
    max_length: int
    cached_tiles: dict[int, Tensor] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, blocks: BlockLayout) -> "DocumentTables":
        """Return the tables of a block layout."""
        device, ends = blocks.lengths.device, [rows.stop - rows.start for rows in blocks.rows]
        slots = torch.tensor([rows.start for rows in blocks.rows], dtype=torch.int32, device=device)
        return cls(slots, blocks.lengths.int(), max(ends))

    def tiles(self, queries_per_tile: int) -> Tensor:
        """Return document and first query of each tile, (D * tiles of the longest document, 2)."""
        if queries_per_tile not in self.cached_tiles:
            documents, firsts = range(len(self.slots)), range(0, self.max_length, queries_per_tile)
            tiles = torch.tensor(list(product(documents, firsts)), dtype=torch.int32)
            self.cached_tiles[queries_per_tile] = tiles.to(self.slots.device)
        return self.cached_tiles[queries_per_tile]


@dataclass(frozen=True)
class _Shape:
    """Constants of a kernel for queries (H, Q, head_dim) and key heads."""

    group: int
    head_dim: int
    block_m: int
    block_n: int
    warps: int

    @classmethod
    def of(cls, query: Tensor, num_kv_heads: int, num_queries: int) -> "_Shape":
        num_heads, _, head_dim = query.shape
        group = num_heads // num_kv_heads
        rows = num_queries * triton.next_power_of_2(group)
        is_half, is_wide = query.dtype in (torch.float16, torch.bfloat16), head_dim > 128
        if is_half:
            block_m, block_n = (64, 32) if is_wide else (128, 64)
        else:
            block_m, block_n = 16 if is_wide else 32, 32 if head_dim <= 64 else 16
        if rows <= MAX_DECODE_ROWS:
            block_m = 16
        block_m = max(block_m, triton.next_power_of_2(group))
        return cls(group, head_dim, block_m, block_n, 8 if block_m >= 64 else 4)

    @property
    def queries_per_tile(self) -> int:
        queries: int = self.block_m // triton.next_power_of_2(self.group)
        return queries

    @property
    def constants(self) -> dict[str, Any]:
        return {
            "GROUP": self.group,
            "GROUP_2": triton.next_power_of_2(self.group),
            "HEAD_DIM": self.head_dim,
            "BLOCK_D": max(16, triton.next_power_of_2(self.head_dim)),
            "BLOCK_M": self.block_m,
            "BLOCK_N": self.block_n,
            "num_warps": self.warps,
            "num_stages": 2,
        }


def attend(
    query: Tensor, key: Tensor, value: Tensor, scoring: AttentionParams, bias: Tensor | None
) -> Tensor:
    """Return causal attention as `causal_tail` does, without weighting by scores."""
    query, key, value = (part if part.stride(-1) == 1 else part.contiguous() for part in (query, key, value))
    num_queries, (num_kv_heads, num_keys, _) = query.shape[1], key.shape
    shape = _Shape.of(query, num_kv_heads, num_queries)
    is_split = num_queries <= MAX_DECODE_ROWS
    split = (
        max(MIN_SPLIT, triton.next_power_of_2(triton.cdiv(num_keys, MAX_SPLITS))) if is_split else num_keys
    )
    parts = triton.cdiv(num_keys, split)
    output = torch.empty(query.shape, dtype=query.dtype, device=query.device)
    stored, maximum, total = output, output, output
    if is_split:
        stored, maximum, total = _parts(parts, query)
    grid = triton.cdiv(num_queries, shape.queries_per_tile), num_kv_heads, parts
    _launch(_attend_kernel, grid)(
        query, key, value, query if bias is None else bias.contiguous(), stored, maximum, total,
        query.stride(0), query.stride(1), key.stride(0), key.stride(1), value.stride(0), value.stride(1),
        num_queries, num_keys, split, scoring.scale, scoring.softcap or 0.0,
        HAS_BIAS=bias is not None, HAS_SOFTCAP=scoring.softcap is not None, IS_SPLIT=is_split,
        **shape.constants,
    )  # fmt: skip
    return _merge(stored, maximum, total, output) if is_split else output


def _launch(kernel: Any, grid: tuple[int, ...]) -> Callable[..., None]:
    """Return the kernel with its grid; it runs on the device of its first argument."""

    def run(first: Tensor, *args: Any, **constants: Any) -> None:
        with torch.cuda.device(first.device) if first.is_cuda else nullcontext():
            kernel[grid](first, *args, **constants)

    return run


def _parts(count: int, query: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return memory for partial sums of queries (H, Q, d), their maxima and totals, in float32."""
    shape = (count, *query.shape)
    output = torch.empty(shape, dtype=torch.float32, device=query.device)
    maximum, total = torch.empty((2, *shape[:-1]), dtype=torch.float32, device=query.device)
    return output, maximum, total


def _merge(parts: Tensor, maximum: Tensor, total: Tensor, output: Tensor) -> Tensor:
    """Merge partial sums (parts, H, Q, d) into the output (H, Q, d)."""
    head_dim = output.shape[-1]
    num_rows = output.numel() // head_dim
    block_d = max(16, triton.next_power_of_2(head_dim))
    _launch(_merge_kernel, (num_rows,))(
        parts, maximum, total, output, len(parts), num_rows, HEAD_DIM=head_dim, BLOCK_D=block_d, BLOCK_P=16
    )
    return output


def document_importance(
    query: Tensor, key: Tensor, tables: DocumentTables, scale: float, kind: ImportanceKind
) -> Tensor:
    """Return the importance of every document for every document, (D, H, D) float32, as for rows of one.

    Shape:
        query: (H, P, d), before RoPE. key: (G, P, d), before RoPE.
    """
    query, key = query.contiguous(), key.contiguous()
    num_heads, num_slots, _ = query.shape
    count = len(tables.slots)
    shape = _Shape.of(query, len(key), tables.max_length)
    tiles = tables.tiles(shape.queries_per_tile)
    sums = torch.zeros(len(tiles), num_heads, count, dtype=torch.float32, device=query.device)
    parts = sums.new_empty(len(tiles), len(key), shape.block_m, count, 2)
    _launch(_rank_kernel, (len(tiles), len(key)))(
        query, key, sums, parts, tiles, tables.slots, tables.lengths, num_slots, count, scale,
        IS_MAX=kind == "max", **shape.constants,
    )  # fmt: skip
    importance = sums.view(count, -1, num_heads, count).sum(1)
    return importance / tables.lengths if kind == "mean" else importance


def attend_documents(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    tables: DocumentTables,
    rotations: tuple[Tensor, Tensor],
    positions: Tensor,
    starts: Tensor,
    visible: Tensor,
    scoring: AttentionParams,
) -> Tensor:
    """Return the attention of document tokens, (H, P, d) in block order, undefined in padding.

    Shape:
        query: (H, P, d), pair layout, unrotated. key, value: (G, prefix + P, d); keys are rotated, those of
            documents by their offset. rotations: cosines and sines (positions, d/2). positions: int32 (P,).
        starts: int32 (D, H or 1, D), as `Ranking.starts`. visible: int8 (D, D).
    """
    query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
    num_slots, count = query.shape[1], len(tables.slots)
    shape = _Shape.of(query, len(key), tables.max_length)
    tiles = tables.tiles(shape.queries_per_tile)
    output = torch.zeros_like(query)
    _launch(_place_kernel, (len(tiles), len(key)))(
        query, key, value, output, *rotations, tiles, tables.slots, tables.lengths, positions,
        starts, starts.stride(0), starts.stride(1) if starts.shape[1] > 1 else 0, visible,
        num_slots, key.shape[1] - num_slots, count, scoring.scale, scoring.softcap or 0.0,
        HAS_SOFTCAP=scoring.softcap is not None, **shape.constants,
    )  # fmt: skip
    return output


def rank_for_suffix(
    query: Tensor,
    unrotated_keys: Tensor,
    tables: DocumentTables,
    documents_end: int,
    *,
    kind: ImportanceKind,
    reverse: bool,
) -> Ranking:
    """Rank the documents for suffix tokens, as the function of `arithmetic`; all tensors are float32."""
    query, keys = query.contiguous(), unrotated_keys.contiguous()
    num_heads, num_queries, _ = query.shape
    count = len(tables.slots)
    maximum, total, importance = torch.empty(
        (3, num_heads, num_queries, count), dtype=torch.float32, device=query.device
    )
    starts = torch.empty((num_heads, num_queries, count), dtype=torch.int32, device=query.device)
    shape = _Shape.of(query, len(keys), num_queries)
    grid = triton.cdiv(num_queries, shape.queries_per_tile), len(keys), count
    _launch(_document_scores_kernel, grid)(
        query, keys, maximum, total, tables.slots, tables.lengths, num_queries, keys.shape[1], count,
        **shape.constants,
    )  # fmt: skip
    _launch(_starts_kernel, (num_heads * num_queries,))(
        maximum, total, importance, starts, tables.lengths, count, documents_end,
        BLOCK_B=triton.next_power_of_2(count), CHUNK=min(RANK_CHUNK, triton.next_power_of_2(count)),
        IS_MAX=kind == "max", IS_MEAN=kind == "mean", IS_REVERSED=reverse,
    )  # fmt: skip
    return Ranking(importance, starts)


def attend_suffix(
    query: Tensor,
    documents: tuple[Tensor, Tensor],
    tail: tuple[Tensor, Tensor],
    tables: DocumentTables,
    rotations: tuple[Tensor, Tensor],
    positions: Tensor,
    starts: Tensor,
    softcap: float | None,
) -> Tensor:
    """Return the attention (H, Q, d) of suffix tokens to documents, prefix and suffix; all float32.

    Shape:
        query: (H, Q, d), pair layout, unrotated, scaled. documents: keys, rotated by offset, and values
            (G, P, d). tail: rotated keys and values (G, K, d) of prefix and suffix. positions: int32 (Q,).
        starts: int32 (H, Q, D).
    """
    query = query.contiguous()
    num_queries = query.shape[1]
    num_kv_heads, num_slots, _ = documents[0].shape
    count = len(tables.slots)
    parts, maximum, total = _parts(count + 1, query)
    shape = _Shape.of(query, num_kv_heads, num_queries)
    _launch(_suffix_kernel, (triton.cdiv(num_queries, shape.queries_per_tile), num_kv_heads, count + 1))(
        query, *documents, *tail, parts, maximum, total, *rotations,
        tables.slots, tables.lengths, positions, starts,
        num_queries, num_slots, count, tail[0].shape[1], tail[0].stride(0), softcap or 0.0,
        HAS_SOFTCAP=softcap is not None, **shape.constants,
    )  # fmt: skip
    return _merge(parts, maximum, total, torch.empty_like(query))
