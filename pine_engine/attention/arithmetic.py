"""Attention arithmetic of all methods, for one layer and one prompt.

Shapes: H query heads, G key/value heads, Q queries, K keys, D documents in block order, P document slots, d
head dimension. Query head h uses key head h // (H / G).
"""

from itertools import pairwise
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from pine_engine.attention.blocks import BlockLayout
from pine_engine.methods.table import ImportanceKind
from pine_engine.network.batch_invariant_ops import invariant_linear
from pine_engine.network.batched_gemm import batched_gemm
from pine_engine.network.layer_progress import add_flop
from pine_engine.network.registration import AttentionParams
from pine_engine.network.rope import from_pairs

QUERY_CHUNK = 256
"""Queries per fused call with a mask, so that the memory of masks is linear in the prompt length."""

SCORE_BLOCK = 400_000
"""Scores per block of the importance computation; a float32 block fits in the cache of a core."""

MAX_SQUARE = 8192
"""Tokens up to which a fused causal call computes all heads."""

MIN_BLOCK_ROWS = 160
"""Queries per block for long prompts, because products of few rows are slow."""

NEGATIVE_INFINITY = float("-inf")


def copied(rows: Tensor) -> Tensor:
    """Copy queries (heads, n, d) to new memory, because a kernel's result can depend on the address."""
    # `contiguous` does not copy slices of a single token or head.
    return rows.clone(memory_format=torch.contiguous_format)


def causal_tail(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scoring: AttentionParams,
    bias: Tensor | None = None,
    later: Tensor | None = None,
    kernels: ModuleType | None = None,
) -> Tensor:
    """Return causal attention of queries (H, Q, d) that are the last tokens of the keys.

    Shape:
        key, value: (G, K, d) or (H, K, d) with K >= Q. bias: (K,), added to the scores of each key.
        later: mask of tail_mask for at least K keys and as many queries as a chunk has, to use a part of.
        kernels: those of a GPU, for methods whose output shall not depend on the document order.
        Returns: (H, Q, d).
    """
    num_queries, num_keys = query.shape[1], key.shape[1]
    if num_queries == 0:  # empty prefix
        return torch.empty_like(query)
    if kernels and scoring.adaptive is None and scoring.calibrated is None:
        add_flop(4 * query.numel() * num_keys)
        output: Tensor = kernels.attend(query, key, value.to(query.dtype), scoring, bias)
        return output
    if num_queries == num_keys and _can_fuse(query, scoring) and bias is None:
        return _fused_square(query, key, value, scoring)
    if num_queries == 1:
        return _attend(query, key, value, tail_mask(query, num_keys, bias), scoring)
    if later is None:
        later = tail_mask(query[:, :QUERY_CHUNK], num_keys)
    outputs = []
    for first in range(0, num_queries, QUERY_CHUNK):
        chunk = query[:, first : first + QUERY_CHUNK]
        visible = num_keys - num_queries + first + chunk.shape[1]
        mask = tail_mask(chunk, visible, bias, later)
        outputs.append(_attend(chunk, key[:, :visible], value[:, :visible], mask, scoring))
        add_flop(4 * chunk.numel() * visible)
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=1)


def scattered_rows(
    query: Tensor, key: Tensor, value: Tensor, places: Tensor, scoring: AttentionParams
) -> Tensor:
    """Return causal attention of queries (H, Q, d) to keys (G, K, d), where a query is the key `places` (Q,).

    Shape:
        value: as key. Returns: (H, Q, d).
    """
    outputs = [torch.empty_like(query[:, :0])]
    for first in range(0, query.shape[1], QUERY_CHUNK):
        chunk, place = query[:, first : first + QUERY_CHUNK], places[first : first + QUERY_CHUNK]
        is_later = torch.arange(key.shape[1], device=key.device) > place[:, None]
        mask = chunk.new_zeros(is_later.shape).masked_fill_(is_later, NEGATIVE_INFINITY)
        outputs.append(_attend(chunk, key, value, mask, scoring))
    return torch.cat(outputs, dim=1)


def _can_fuse(query: Tensor, scoring: AttentionParams) -> bool:
    """Check whether fused attention can compute queries (H, Q, d)."""
    # It supports neither softcap nor weighting by scores. For a single query on the CPU it depends on the
    # number of threads, and takes five times as long in half precision.
    is_weighted_by_scores = scoring.adaptive is not None or scoring.calibrated is not None
    is_plain = scoring.softcap is None and scoring.sinks is None and not is_weighted_by_scores
    return is_plain and (query.shape[1] > 1 or query.device.type != "cpu")


def _attend(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scoring: AttentionParams
) -> Tensor:
    attend = _fused if _can_fuse(query, scoring) else _weighted
    return attend(query, key, value, mask, scoring)


def _fused_square(query: Tensor, key: Tensor, value: Tensor, scoring: AttentionParams) -> Tensor:
    """Return causal attention of all tokens, one head at a time if that takes long."""
    group, outputs = len(query) // len(key), []
    num_heads = 1 if query.device.type == "cpu" and query.shape[1] > MAX_SQUARE else len(query)
    for head in range(0, len(query), num_heads):
        kv = slice(head // group, (head + num_heads - 1) // group + 1)
        outputs.append(_fused(query[head : head + num_heads], key[kv], value[kv], None, scoring))
        add_flop(2 * outputs[-1].numel() * key.shape[1])
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


def _fused(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scoring: AttentionParams
) -> Tensor:
    is_causal = mask is None and query.shape[1] == key.shape[1]
    use_groups = key.shape[0] != query.shape[0]
    batch = query[None], key[None], value[None]
    output = scaled_dot_product_attention(
        *batch, attn_mask=mask, is_causal=is_causal, scale=scoring.scale, enable_gqa=use_groups
    )
    return output[0]


def _weighted(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scoring: AttentionParams
) -> Tensor:
    weights = attention_weights(query, key, scoring, mask)
    summed = batched_gemm(weights.view(key.shape[0], -1, key.shape[1]), value.to(weights.dtype))
    return summed.to(query.dtype).view_as(query)


def attention_weights(query: Tensor, key: Tensor, scoring: AttentionParams, mask: Tensor | None) -> Tensor:
    """Return softmax weights (H, Q, K) in float32 or more; `mask` (Q, K) or (1, K) is added to the scores."""
    dtype = torch.promote_types(query.dtype, torch.float32)
    rows = query.reshape(key.shape[0], -1, query.shape[-1]).to(dtype)
    scores = batched_gemm(rows, key.to(dtype).mT) * scoring.scale
    if adaptive := scoring.adaptive:
        scores[..., adaptive.first : adaptive.end] /= adaptive.temperature
    scores = cap(scores, scoring.softcap)
    if adaptive:
        of_documents = scores[..., adaptive.first : adaptive.end]
        of_documents += (adaptive.temperature * adaptive.scale - 1) * of_documents.logsumexp(-1, keepdim=True)
    if calibrated := scoring.calibrated:
        documents = [scores[..., first:end] for first, end in pairwise(calibrated.bounds)]
        of_each = torch.cat([one.logsumexp(-1, keepdim=True) for one in documents], dim=-1)
        changes = of_each.logsumexp(-1, keepdim=True) - of_each + scores.new_tensor(calibrated.log_shares)
        for one, change in zip(documents, changes.unbind(-1), strict=True):
            one += change[..., None]
    scores = scores.view(*query.shape[:2], key.shape[1])
    return softmax(scores if mask is None else scores + mask, scoring.sinks, len(query))


def softmax(scores: Tensor, sinks: Tensor | None, num_heads: int) -> Tensor:
    """Return softmax weights of scores (..., K), whose rows are those of one head after the other.

    `sinks` (heads of one sequence,) are one more score of every row, whose weight is left out.
    """
    if sinks is None:
        return scores.softmax(-1)
    rows = scores.numel() // scores.shape[-1]
    of_row = sinks.to(scores.dtype).repeat(num_heads // len(sinks)).repeat_interleave(rows // num_heads)
    with_sink = torch.cat((scores, of_row.view(*scores.shape[:-1], 1)), dim=-1)
    return with_sink.softmax(-1)[..., :-1].contiguous()


def tail_mask(
    query: Tensor, num_keys: int, bias: Tensor | None = None, larger: Tensor | None = None
) -> Tensor | None:
    """Return the additive causal mask, (Q or 1, num_keys), of the last queries (H, Q, d), or None.

    `larger` is such a mask for more queries and keys, whose last ones are used.
    """
    num_queries = query.shape[1]
    mask = None if bias is None else bias[None, :num_keys]
    if num_queries == 1:
        return mask
    if larger is None:
        larger = query.new_full((num_queries, num_keys), NEGATIVE_INFINITY).triu_(num_keys - num_queries + 1)
    later = larger[-num_queries:, -num_keys:]
    return later if mask is None else later + mask


def cap(scores: Tensor, softcap: float | None) -> Tensor:
    """Limit scores to -softcap .. softcap in place; None keeps them."""
    return scores if softcap is None else scores.div_(softcap).tanh_().mul_(softcap)


def document_importance(
    query: Tensor,
    keys: Tensor,
    document: int,
    blocks: BlockLayout,
    kind: ImportanceKind,
    sinks: Tensor | None = None,
) -> Tensor:
    """Return the importance of each other document for the tokens of one document, without positions.

    It is the reduction `kind` of softmax weights over all other documents, summed over the queries; 0 for the
    document itself. Source: specification 3.5, I(a, b), and 3.9.

    Shape:
        query: (G, H/G * Q, d), before RoPE, scaled. keys: (G, P, d), before RoPE. Returns: (H, D).
    """
    num_queries = int(blocks.lengths[document])
    num_kv_heads, rows, _ = query.shape
    bias = keys.new_zeros(keys.shape[1])
    bias.masked_fill_(blocks.is_padding | (blocks.document == document), NEGATIVE_INFINITY)
    chunk = max(MIN_BLOCK_ROWS, SCORE_BLOCK // keys.shape[1])
    reduced = keys.new_empty(num_kv_heads, rows, len(blocks.lengths))
    for head in range(num_kv_heads):
        for first in range(0, rows, chunk):
            weights = invariant_linear(query[head, first : first + chunk], keys[head], bias)
            if sinks is None:
                # In place, because a second block of this size is returned to the system after each use.
                torch.softmax(weights, -1, out=weights)
            else:
                heads = (
                    head * (rows // num_queries) + torch.arange(first, first + len(weights)) // num_queries
                )
                weights = softmax(weights, sinks[heads.to(sinks.device)], len(weights))
            reduced[head, first : first + chunk] = reduce_by_document(weights, blocks, kind)
            add_flop(2 * weights.numel() * keys.shape[-1])
    per_head = reduced.view(num_kv_heads, -1, num_queries, reduced.shape[-1]).sum(2).flatten(0, 1)
    return per_length(per_head, blocks, kind)


def reduce_by_document(weights: Tensor, blocks: BlockLayout, kind: ImportanceKind) -> Tensor:
    """Return the maximum or the sum of each document's weights: (..., P) to (..., D). Padding must be 0."""
    parts = blocks.by_class(weights, dim=-1)
    reduced = [part.amax(-1) if kind == "max" else part.sum(-1) for part in parts]
    return reduced[0] if len(reduced) == 1 else torch.cat(reduced, dim=-1)


def per_length(reduced: Tensor, blocks: BlockLayout, kind: ImportanceKind) -> Tensor:
    """Convert sums over documents (..., D) to means, if `kind` is the mean."""
    return reduced / blocks.lengths if kind == "mean" else reduced


def rank_documents(importance: Tensor, *, is_own: Tensor | None = None, reverse: bool = False) -> Tensor:
    """Return the documents from closest to farthest, int64 (..., D), the own one first; ties in block order.

    Shape:
        importance: (..., D). is_own: bool, broadcastable to it.
    """
    closeness = -importance if reverse else importance
    if is_own is not None:
        closeness = closeness.masked_fill(is_own, float("inf"))
    return torch.argsort(closeness, dim=-1, descending=True, stable=True)


def starts_from_ranking(ranking: Tensor, lengths: Tensor, end: int) -> Tensor:
    """Return the start of each document, as methods/plan.py does for numpy."""
    ranked_starts = end - lengths[ranking].cumsum(-1)
    return torch.empty_like(ranked_starts).scatter_(-1, ranking, ranked_starts)


class Ranking(NamedTuple):
    """Importance of the documents for queries, and the start positions that follow from it, in block order.

    Shape: (D, H, D) for documents, the query document first; (H, Q, D) for the suffix. The starts of
    documents are (D, 1, D) if no head can differ.
    """

    importance: Tensor
    starts: Tensor


def known_importance(
    like: Tensor, blocks: BlockLayout, scoring: AttentionParams, kind: ImportanceKind
) -> Tensor | None:
    """Return the importance (D, 1, D) of one or two documents if no query can change it, otherwise None."""
    count = len(blocks.lengths)
    # The softmax weights on the only other document sum to 1 for each query.
    if count == 1 or (count == 2 and kind != "max" and scoring.sinks is None):
        is_other = ~torch.eye(count, dtype=torch.bool, device=like.device)[:, None]
        return per_length(is_other.to(like.dtype) * blocks.lengths[:, None, None], blocks, kind)
    return None


def importance_for_documents(
    query: Tensor, keys: Tensor, blocks: BlockLayout, scoring: AttentionParams, kind: ImportanceKind
) -> Tensor:
    """Return the importance of every document for every document.

    Shape:
        query: (H, P, d), before RoPE. keys: (G, P, d), before RoPE. Returns: (D, H, D).
    """
    count = len(blocks.lengths)
    # Allocated first: results between the blocks of scores would keep their memory from being reused.
    importance = keys.new_empty(count, len(query), count)
    scaled = query * scoring.scale
    for index, rows in enumerate(blocks.rows):
        of_document = scaled[:, rows].reshape(len(keys), -1, query.shape[-1])  # (G, H/G * Q, d)
        importance[index] = document_importance(of_document, keys, index, blocks, kind, scoring.sinks)
    return importance


def rank_for_documents(
    importance: Tensor, num_heads: int, blocks: BlockLayout, end: int, *, reverse: bool
) -> Ranking:
    """Rank the documents for every document and head by their importance, (D, H, D) or (D, 1, D)."""
    is_own = torch.eye(len(blocks.lengths), dtype=torch.bool, device=importance.device)[:, None]
    ranking = rank_documents(importance, is_own=is_own, reverse=reverse)
    starts = starts_from_ranking(ranking, blocks.lengths, end)
    return Ranking(importance.expand(-1, num_heads, -1), starts)


def lay_out(starts: Tensor, own: int, visible: Tensor, blocks: BlockLayout) -> Tensor:
    """Return the slots that a document attends to, int64 (H, K), from the farthest to `own`, the closest.

    Shape:
        starts: (H, D), start of each document. visible: bool (D,), documents to attend to, K tokens in all.
    """
    far_to_close = starts.clone()
    far_to_close[:, own] = torch.iinfo(starts.dtype).max
    order = torch.argsort(far_to_close, dim=-1, stable=True)
    lengths = blocks.lengths * visible
    ordered = lengths[order]
    first = torch.empty_like(starts).scatter_(-1, order, ordered.cumsum(-1) - ordered)
    places = first[:, blocks.document] + blocks.offset
    total = int(lengths.sum())
    places.masked_fill_(blocks.is_padding | ~visible[blocks.document], total)
    slots = torch.arange(places.shape[1], device=starts.device).expand_as(places)
    arranged = torch.empty(starts.shape[0], total + 1, dtype=torch.int64, device=starts.device)
    return arranged.scatter_(1, places, slots)[:, :-1]


def rank_for_suffix(
    query: Tensor,
    unrotated_keys: Tensor,
    padding: Tensor | None,
    blocks: BlockLayout,
    documents_end: int,
    *,
    kind: ImportanceKind,
    reverse: bool,
    sinks: Tensor | None = None,
) -> Ranking:
    """Rank the documents for every suffix token and head.

    Shape:
        query: (H, Q, d), before RoPE, scaled. unrotated_keys: (G, P, d). padding: see padding_bias.
    """
    rows = query.reshape(unrotated_keys.shape[0], -1, query.shape[-1])
    scores = batched_gemm(rows, unrotated_keys.mT)
    weights = softmax(scores if padding is None else scores.add_(padding), sinks, len(query))
    importance = per_length(reduce_by_document(weights, blocks, kind), blocks, kind)
    importance = importance.view(*query.shape[:2], -1)
    starts = starts_from_ranking(rank_documents(importance, reverse=reverse), blocks.lengths, documents_end)
    return Ranking(importance, starts)


def document_queries(query_pairs: Tensor, positions: Tensor, starts: Tensor, table: Tensor) -> Tensor:
    """Rotate suffix queries for each document by their distance to its start; keys by their offset.

    Source: specification 4.

    Shape:
        query_pairs: (H, Q, d/2), unrotated. positions: (Q,). starts: (H, Q, D). Returns: (H, Q, D, d).
    """
    return from_pairs(query_pairs[:, :, None] * table[positions[:, None] - starts])


def suffix_weights(
    document_query: Tensor,
    query: Tensor,
    document_keys: list[Tensor],
    padding: Tensor | None,
    tail_keys: Tensor,
    scoring: AttentionParams,
) -> Tensor:
    """Return softmax weights of suffix tokens on the slots of all documents, then on prefix and suffix.

    Queries and keys are rotated, queries scaled, all of one dtype.

    Shape:
        document_query: (H, Q, D, d). query: (H, Q, d). document_keys: (G, documents, length, d) per length
            class. tail_keys: (G, K, d) of prefix and suffix, whose last tokens are the queries.
        Returns: (H, Q, P + K).
    """
    num_heads, num_queries, _, head_dim = document_query.shape
    num_kv_heads, num_tail, _ = tail_keys.shape
    num_slots = sum(keys.shape[1] * keys.shape[2] for keys in document_keys)
    by_document = document_query.reshape(num_kv_heads, -1, *document_query.shape[2:]).transpose(1, 2)
    scores = query.new_empty(num_kv_heads, by_document.shape[2], num_slots + num_tail)
    document = slot = 0
    for keys in document_keys:
        last, end = document + keys.shape[1], slot + keys.shape[1] * keys.shape[2]
        part = batched_gemm(by_document[:, document:last], keys.mT)
        scores[..., slot:end].unflatten(-1, keys.shape[1:3]).copy_(part.transpose(1, 2))
        document, slot = last, end
    scores[..., slot:] = batched_gemm(query.reshape(num_kv_heads, -1, head_dim), tail_keys.mT)
    scores = cap(scores, scoring.softcap).view(num_heads, num_queries, -1)
    if padding is not None:
        scores[..., :num_slots] += padding
    later = tail_mask(query, num_tail)
    if later is not None:
        scores[..., num_slots:] += later
    return softmax(scores, scoring.sinks, num_heads)


def apply_weights(weights: Tensor, document_values: Tensor, tail_values: Tensor) -> Tensor:
    """Return the sum (H, Q, d) of values (G, P, d) and (G, K, d), weighted as in suffix_weights."""
    num_kv_heads, num_slots, head_dim = document_values.shape
    rows = weights.view(num_kv_heads, -1, weights.shape[-1])
    to_tail = batched_gemm(rows[..., num_slots:], tail_values)
    summed = batched_gemm(rows[..., :num_slots], document_values, to_tail)
    return summed.view(*weights.shape[:2], head_dim)
