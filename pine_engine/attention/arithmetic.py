"""Attention arithmetic of all methods, for one layer and one prompt.

Shapes: H query heads, G key/value heads, Q queries, K keys, D documents in block order, P document slots, d
head dimension. Query head h uses key head h // (H / G).
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from pine_engine.attention.blocks import BlockLayout
from pine_engine.methods.table import ImportanceKind
from pine_engine.network.batch_invariant_ops import invariant_linear
from pine_engine.network.registration import AttentionParams
from pine_engine.network.rope import from_pairs

QUERY_CHUNK = 256
"""Queries per fused call with a mask, so that the memory of masks is linear in the prompt length."""

SCORE_BLOCK = 400_000
"""Scores per block of the importance computation; a float32 block fits in the cache of a core."""

NEGATIVE_INFINITY = float("-inf")


def copied(rows: Tensor) -> Tensor:
    """Copy queries (heads, n, d) to new memory, because a kernel's result can depend on the address.

    `contiguous` does not copy slices of a single token or head.
    """
    return rows.clone(memory_format=torch.contiguous_format)


def causal_tail(
    query: Tensor, key: Tensor, value: Tensor, scoring: AttentionParams, bias: Tensor | None = None
) -> Tensor:
    """Return causal attention of queries that are the last tokens of the keys.

    It is fused, with two exceptions: softcap, which fused attention does not support, and a single query on
    the CPU, where fused attention depends on the number of threads and takes five times as long in half
    precision.

    Shape:
        query: (H, Q, d). key, value: (G, K, d) or (H, K, d) with K >= Q.
        bias: (K,), added to the scores of each key.
        Returns: (H, Q, d).
    """
    num_queries, num_keys = query.shape[1], key.shape[1]
    if num_queries == 0:  # empty prefix
        return torch.empty_like(query)
    can_fuse = scoring.softcap is None and (num_queries > 1 or query.device.type != "cpu")
    attend = _fused if can_fuse else _weighted
    if num_queries == num_keys and can_fuse and bias is None:
        return _fused(query, key, value, None, scoring, is_causal=True)
    outputs = []
    for first in range(0, num_queries, QUERY_CHUNK):
        chunk = query[:, first : first + QUERY_CHUNK]
        visible = num_keys - num_queries + first + chunk.shape[1]
        mask = tail_mask(chunk, visible, bias)
        outputs.append(attend(chunk, key[:, :visible], value[:, :visible], mask, scoring))
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=1)


def _fused(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scoring: AttentionParams,
    *,
    is_causal: bool = False,
) -> Tensor:
    return scaled_dot_product_attention(
        query[None],
        key[None],
        value[None],
        attn_mask=mask,
        is_causal=is_causal,
        scale=scoring.scale,
        enable_gqa=key.shape[0] != query.shape[0],
    )[0]


def _weighted(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scoring: AttentionParams
) -> Tensor:
    weights = attention_weights(query, key, scoring, mask)
    summed = weights.view(key.shape[0], -1, key.shape[1]) @ value.to(weights.dtype)
    return summed.to(query.dtype).view_as(query)


def attention_weights(query: Tensor, key: Tensor, scoring: AttentionParams, mask: Tensor | None) -> Tensor:
    """Return softmax weights in float32 or more; `mask` is added to the scores.

    Shape:
        query: (H, Q, d). key: (G, K, d) or (H, K, d). mask: (Q, K) or (1, K).
        Returns: (H, Q, K).
    """
    dtype = torch.promote_types(query.dtype, torch.float32)
    rows = query.reshape(key.shape[0], -1, query.shape[-1]).to(dtype)
    scores = cap(rows @ key.to(dtype).mT * scoring.scale, scoring.softcap)
    scores = scores.view(query.shape[0], query.shape[1], -1)
    return (scores if mask is None else scores + mask).softmax(-1)


def tail_mask(query: Tensor, num_keys: int, bias: Tensor | None = None) -> Tensor | None:
    """Return the additive causal mask of queries (H, Q, d) that are the last of `num_keys` tokens.

    Shape:
        bias: (num_keys or more,), added to the scores of each key.
        Returns: (Q, num_keys) or (1, num_keys); None if nothing is added.
    """
    num_queries = query.shape[1]
    mask = None if bias is None else bias[None, :num_keys]
    if num_queries == 1:
        return mask
    later = query.new_full((num_queries, num_keys), NEGATIVE_INFINITY).triu_(num_keys - num_queries + 1)
    return later if mask is None else later + mask


def cap(scores: Tensor, softcap: float | None) -> Tensor:
    """Limit scores to -softcap .. softcap in place; None keeps them."""
    return scores if softcap is None else scores.div_(softcap).tanh_().mul_(softcap)


def document_importance(
    query: Tensor, keys: Tensor, document: int, blocks: BlockLayout, kind: ImportanceKind
) -> Tensor:
    """Return the importance of each other document for the tokens of one document, without positions.

    Source: specification 3.5, I(a, b), and 3.9.

    Shape:
        query: (G, H/G * Q, d), the document's queries before RoPE, scaled; per query head Q in a row.
        keys: (G, P, d), document keys before RoPE.
        Returns: (H, D), the reductions `kind` of softmax weights over all other documents, summed over the
            queries; 0 for the document itself.
    """
    num_queries = int(blocks.lengths[document])
    num_kv_heads, rows, _ = query.shape
    bias = keys.new_zeros(keys.shape[1])
    bias.masked_fill_(blocks.is_padding | (blocks.document == document), NEGATIVE_INFINITY)
    chunk = max(1, SCORE_BLOCK // keys.shape[1])
    reduced = keys.new_empty(num_kv_heads, rows, len(blocks.lengths))
    for head in range(num_kv_heads):
        for first in range(0, rows, chunk):
            weights = invariant_linear(query[head, first : first + chunk], keys[head], bias).softmax(-1)
            reduced[head, first : first + chunk] = reduce_by_document(weights, blocks, kind)
    per_head = reduced.view(num_kv_heads, -1, num_queries, reduced.shape[-1]).sum(2).flatten(0, 1)
    return per_length(per_head, blocks, kind)


def reduce_by_document(weights: Tensor, blocks: BlockLayout, kind: ImportanceKind) -> Tensor:
    """Return the maximum or the sum of each document's weights: (..., P) to (..., D)."""
    return blocks.max_by_document(weights) if kind == "max" else blocks.sum_by_document(weights)


def per_length(reduced: Tensor, blocks: BlockLayout, kind: ImportanceKind) -> Tensor:
    """Convert sums over documents (..., D) to means, if `kind` is the mean."""
    return reduced / blocks.lengths if kind == "mean" else reduced


def rank_documents(importance: Tensor, own: int | None = None, *, reverse: bool = False) -> Tensor:
    """Return the documents from the closest to the farthest: by decreasing importance, or increasing.

    The document `own` is always first. Block order resolves exact ties.

    Shape:
        importance: (..., D). Returns: int64 (..., D).
    """
    closeness = -importance if reverse else importance
    if own is not None:
        closeness = closeness.clone()
        closeness[..., own] = float("inf")
    return torch.argsort(closeness, dim=-1, descending=True, stable=True)


def starts_from_ranking(ranking: Tensor, lengths: Tensor, end: int) -> Tensor:
    """Return the start of each document, as methods/positions.py does for numpy."""
    ranked_starts = end - lengths[ranking].cumsum(-1)
    return torch.empty_like(ranked_starts).scatter_(-1, ranking, ranked_starts)


@dataclass(frozen=True)
class Ranking:
    """Importance of the documents for queries, and the start positions that follow from it.

    Documents are in block order. For document queries, Q is the query document and precedes H.

    Attributes:
        importance: (D, H, D) for documents, (H, Q, D) for the suffix.
        starts: int64 of the same shape; (D, 1, D) if no head can differ.
    """

    importance: Tensor
    starts: Tensor


def rank_for_documents(
    queries: list[Tensor],
    keys: Tensor,
    blocks: BlockLayout,
    documents_end: int,
    *,
    kind: ImportanceKind,
    reverse: bool,
) -> Ranking:
    """Rank the documents for every document and head.

    One or two documents need no ranking. Their importance is known without scores, except for the maximum,
    because the softmax weights on the only other document sum to 1 for each query.

    Shape:
        queries: (G, H/G * Q, d) per document, before RoPE, scaled. keys: (G, P, d), before RoPE.
    """
    count = len(queries)
    is_certain = count == 1 or (count == 2 and kind != "max")
    if is_certain:
        num_heads = queries[0].shape[0] * queries[0].shape[1] // int(blocks.lengths[0])
        others = 1 - torch.eye(count, dtype=keys.dtype, device=keys.device)
        importance = per_length(others * blocks.lengths[:, None], blocks, kind)[:, None]
        importance = importance.expand(-1, num_heads, -1)
    else:
        importance = torch.stack(
            [document_importance(query, keys, index, blocks, kind) for index, query in enumerate(queries)]
        )
    starts = torch.stack(
        [
            starts_from_ranking(
                rank_documents(of_document, own=index, reverse=reverse), blocks.lengths, documents_end
            )
            for index, of_document in enumerate(importance[:, :1] if is_certain else importance)
        ]
    )
    return Ranking(importance, starts)


def lay_out(starts: Tensor, own: int, visible: Tensor, blocks: BlockLayout) -> Tensor:
    """Return the slots that a document attends to, from the farthest to the closest.

    The document `own` is always the closest.

    Shape:
        starts: (H, D), start of each document. visible: bool (D,), documents to attend to, K tokens in all.
        Returns: int64 (H, K).
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


def positions_of(slots: Tensor, starts: Tensor, blocks: BlockLayout) -> Tensor:
    """Return the positions of slots (H, K), if documents start at `starts` (H, D): int64 (H, K)."""
    return starts.gather(1, blocks.document[slots]) + blocks.offset[slots]


def rank_for_suffix(
    query: Tensor,
    unrotated_keys: Tensor,
    padding: Tensor | None,
    blocks: BlockLayout,
    documents_end: int,
    *,
    kind: ImportanceKind,
    reverse: bool,
) -> Ranking:
    """Rank the documents for every suffix token and head.

    Shape:
        query: (H, Q, d), before RoPE, scaled. unrotated_keys: (G, P, d), by slot.
        padding: (P,), 0 for tokens and -inf for padding; None without padding.
    """
    rows = query.reshape(unrotated_keys.shape[0], -1, query.shape[-1])
    scores = rows @ unrotated_keys.mT
    weights = (scores if padding is None else scores.add_(padding)).softmax(-1)
    importance = per_length(reduce_by_document(weights, blocks, kind), blocks, kind)
    importance = importance.view(*query.shape[:2], -1)
    starts = starts_from_ranking(rank_documents(importance, reverse=reverse), blocks.lengths, documents_end)
    return Ranking(importance, starts)


def document_queries(query_pairs: Tensor, positions: Tensor, starts: Tensor, table: Tensor) -> Tensor:
    """Rotate suffix queries for each document by their distance to its start.

    Source: specification 4: keys are rotated by their offset, queries by position - start.

    Shape:
        query_pairs: complex (H, Q, d/2), unrotated. positions: (Q,). starts: (H, Q, D). table: see Rope.
        Returns: (H, Q, D, d).
    """
    return from_pairs(query_pairs[:, :, None] * table[positions[:, None] - starts])


def suffix_weights(
    document_query: Tensor,
    query: Tensor,
    document_keys: list[Tensor],
    padding: Tensor | None,
    tail_keys: Tensor,
    softcap: float | None,
) -> Tensor:
    """Return softmax weights of suffix tokens on the slots of all documents, then on prefix and suffix.

    Queries and keys are rotated, queries scaled, all of one dtype.

    Shape:
        document_query: (H, Q, D, d). query: (H, Q, d), for prefix and suffix.
        document_keys: (G, documents, length, d) per length class. padding: as in rank_for_suffix.
        tail_keys: (G, K, d) of prefix and suffix; the queries are the last tokens.
        Returns: (H, Q, P + K), slots in block order.
    """
    num_heads, num_queries, _, head_dim = document_query.shape
    num_kv_heads, num_tail, _ = tail_keys.shape
    num_slots = sum(keys.shape[1] * keys.shape[2] for keys in document_keys)
    by_document = document_query.reshape(num_kv_heads, -1, *document_query.shape[2:]).transpose(1, 2)
    scores = query.new_empty(num_kv_heads, by_document.shape[2], num_slots + num_tail)
    document = slot = 0
    for keys in document_keys:
        last, end = document + keys.shape[1], slot + keys.shape[1] * keys.shape[2]
        part = by_document[:, document:last] @ keys.mT
        scores[..., slot:end].unflatten(-1, keys.shape[1:3]).copy_(part.transpose(1, 2))
        document, slot = last, end
    scores[..., slot:] = query.reshape(num_kv_heads, -1, head_dim) @ tail_keys.mT
    scores = cap(scores, softcap).view(num_heads, num_queries, -1)
    if padding is not None:
        scores[..., :num_slots] += padding
    later = tail_mask(query, num_tail)
    if later is not None:
        scores[..., num_slots:] += later
    return scores.softmax(-1)


def apply_weights(weights: Tensor, document_values: Tensor, tail_values: Tensor) -> Tensor:
    """Return the sum of values, weighted as in suffix_weights.

    Shape:
        weights: (H, Q, P + K). document_values: (G, P, d). tail_values: (G, K, d).
        Returns: (H, Q, d).
    """
    num_kv_heads, num_slots, head_dim = document_values.shape
    rows = weights.view(num_kv_heads, -1, weights.shape[-1])
    to_tail = rows[..., num_slots:] @ tail_values
    return torch.baddbmm(to_tail, rows[..., :num_slots], document_values).view(*weights.shape[:2], head_dim)
