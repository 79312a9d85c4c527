"""The attention arithmetic of all methods, for one layer and one prompt.

Shapes: H query heads, G key/value heads, Q queries, K keys, D documents in block order, P document
slots, d head dimension. Query head h reads key head h // (H / G).
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from pine_engine.attention.blocks import BlockLayout
from pine_engine.methods.table import ImportanceKind
from pine_engine.network.batch_invariant_ops import linear
from pine_engine.network.registration import AttentionParams
from pine_engine.network.rope import from_pairs

QUERY_CHUNK = 256
"""Queries per fused call where a mask is needed, so that masks grow with the prompt, not its square."""

SCORE_BLOCK = 400_000
"""Scores per block of the importance computation; a block of float32 then stays in a core's cache."""

NEGATIVE_INFINITY = float("-inf")


def copied(rows: Tensor) -> Tensor:
    """The same rows (heads, n, d) at a place of their own in memory, where kernels treat them alike wherever
    they stood; a slice of one row, or of one head, counts as contiguous where it stands."""
    return rows.clone(memory_format=torch.contiguous_format)


def causal_tail(
    query: Tensor, key: Tensor, value: Tensor, scoring: AttentionParams, bias: Tensor | None = None
) -> Tensor:
    """Attention of queries that are the last of the keys: each sees all keys up to itself.

    query: (H, Q, d). key, value: (G, K, d) or (H, K, d) with K >= Q. bias: (K,), added to the scores of
    each key. Returns (H, Q, d). Fused, but for capped scores, which fused attention does not offer, and for a
    single query on the CPU: there its bits depend on the number of threads, and a half precision takes five
    times as long.
    """
    num_queries, num_keys = query.shape[1], key.shape[1]
    if num_queries == 0:  # of an empty prefix
        return torch.empty_like(query)
    is_plain = scoring.softcap is None and (num_queries > 1 or query.device.type != "cpu")
    attend = _fused if is_plain else _weighted
    if num_queries == num_keys and is_plain and bias is None:
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
    """The softmax weights themselves, at least float32: (H, Q, K) for arguments as in causal_tail.

    mask: added to the scores, (Q, K) or (1, K).
    """
    dtype = torch.promote_types(query.dtype, torch.float32)
    rows = query.reshape(key.shape[0], -1, query.shape[-1]).to(dtype)
    scores = cap(rows @ key.to(dtype).mT * scoring.scale, scoring.softcap)
    scores = scores.view(query.shape[0], query.shape[1], -1)
    return (scores if mask is None else scores + mask).softmax(-1)


def tail_mask(query: Tensor, num_keys: int, bias: Tensor | None = None) -> Tensor | None:
    """What to add to the scores of queries (H, Q, d) that are the last of num_keys keys: (Q, num_keys) or
    (1, num_keys), None if nothing. bias: (num_keys or more,), of each key."""
    num_queries = query.shape[1]
    mask = None if bias is None else bias[None, :num_keys]
    if num_queries == 1:
        return mask
    later = query.new_full((num_queries, num_keys), NEGATIVE_INFINITY).triu_(num_keys - num_queries + 1)
    return later if mask is None else later + mask


def cap(scores: Tensor, softcap: float | None) -> Tensor:
    """Scores limited to -softcap .. softcap; unchanged for None."""
    return scores if softcap is None else scores.div_(softcap).tanh_().mul_(softcap)


def document_importance(
    query: Tensor, keys: Tensor, document: int, blocks: BlockLayout, kind: ImportanceKind
) -> Tensor:
    """How important one document's tokens together find each other document, positions ignored.

    query: (G, H/G * Q, d), that document's queries before rotation, scaled, Q per query head in turn.
    keys: (G, P, d), document keys before rotation. document: index in block order.
    Returns (H, D), sums over the queries of what `kind` takes of softmax weights over all other documents'
    tokens; the own document's entry is 0.
    Source: specification 3.5, I(a, b), and 3.9.
    """
    num_queries = int(blocks.lengths[document])
    num_kv_heads, rows, _ = query.shape
    bias = keys.new_zeros(keys.shape[1])
    bias.masked_fill_(blocks.is_padding | (blocks.document == document), NEGATIVE_INFINITY)
    chunk = max(1, SCORE_BLOCK // keys.shape[1])
    taken = keys.new_empty(num_kv_heads, rows, len(blocks.lengths))
    for head in range(num_kv_heads):
        for first in range(0, rows, chunk):
            weights = linear(query[head, first : first + chunk], keys[head], bias).softmax(-1)
            found = blocks.max_by_document(weights) if kind == "max" else blocks.sum_by_document(weights)
            taken[head, first : first + chunk] = found
    per_head = taken.view(num_kv_heads, -1, num_queries, taken.shape[-1]).sum(2).flatten(0, 1)
    return per_length(per_head, blocks, kind)


def per_length(taken: Tensor, blocks: BlockLayout, kind: ImportanceKind) -> Tensor:
    """An importance (..., D) from what was taken of each document's tokens."""
    return taken / blocks.lengths if kind == "mean" else taken


def rank_documents(importance: Tensor, own: int | None = None, *, reverse: bool = False) -> Tensor:
    """Documents from the closest to the farthest, (..., D): by falling importance, or rising for reverse;
    the own one always first.

    importance: (..., D) in block order, which breaks exact ties.
    """
    closeness = -importance if reverse else importance
    if own is not None:
        closeness = closeness.clone()
        closeness[..., own] = float("inf")
    return torch.argsort(closeness, dim=-1, descending=True, stable=True)


def starts_from_ranking(ranking: Tensor, lengths: Tensor, end: int) -> Tensor:
    """The same as of arrays in methods/positions.py, on the device on which attention ranks."""
    ranked_starts = end - lengths[ranking].cumsum(-1)
    return torch.empty_like(ranked_starts).scatter_(-1, ranking, ranked_starts)


@dataclass(frozen=True)
class RankedDocuments:
    """How the documents of one layer see each other under importance ranking, in block order.

    importance: (D, H, D). starts: int64 (D, H, D), start of document b as seen from document a's head h, or
    (D, 1, D) if no head can differ.
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
) -> RankedDocuments:
    """Ranks the documents for every document and head.

    queries: for each document (G, H/G * Q, d), unrotated and scaled. keys: (G, P, d), unrotated.
    With one or two documents there is nothing to rank, in any head, and where their importance is known too,
    the scores are not computed: the softmax weights on the only other document sum to 1 for each query.
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
                rank_documents(row, own=index, reverse=reverse), blocks.lengths, documents_end
            )
            for index, row in enumerate(importance[:, :1] if is_certain else importance)
        ]
    )
    return RankedDocuments(importance, starts)


def lay_out(starts: Tensor, own: int, visible: Tensor, blocks: BlockLayout) -> Tensor:
    """Which slots a document sees, from the farthest to the closest: int64 (H, K).

    starts: (H, D), where each document stands for it. own: its index, always the closest. visible: (D,),
    which ones it sees, K tokens in all.
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
    laid = torch.empty(starts.shape[0], total + 1, dtype=torch.int64, device=starts.device)
    return laid.scatter_(1, places, slots)[:, :-1]


def positions_of(slots: Tensor, starts: Tensor, blocks: BlockLayout) -> Tensor:
    """Where the slots (H, K) stand if each document starts at starts (H, D): int64 (H, K)."""
    return starts.gather(1, blocks.document[slots]) + blocks.offset[slots]


@dataclass(frozen=True)
class SuffixRanking:
    """importance: (H, Q, D) I(x, b) of specification 3.5; starts: int64 (H, Q, D); both in block order."""

    importance: Tensor
    starts: Tensor


def rank_for_suffix(
    query: Tensor,
    unrotated_keys: Tensor,
    padding: Tensor | None,
    blocks: BlockLayout,
    documents_end: int,
    *,
    kind: ImportanceKind,
    reverse: bool,
) -> SuffixRanking:
    """Ranks the documents for every suffix token and head.

    query: (H, Q, d), unrotated and scaled. unrotated_keys: (G, P, d), by slot. padding: (P,), 0 for tokens
    and -inf for padding, None without any.
    """
    rows = query.reshape(unrotated_keys.shape[0], -1, query.shape[-1])
    scores = rows @ unrotated_keys.mT
    weights = (scores if padding is None else scores.add_(padding)).softmax(-1)
    taken = blocks.max_by_document(weights) if kind == "max" else blocks.sum_by_document(weights)
    importance = per_length(taken, blocks, kind).view(*query.shape[:2], -1)
    starts = starts_from_ranking(rank_documents(importance, reverse=reverse), blocks.lengths, documents_end)
    return SuffixRanking(importance, starts)


def document_queries(query_pairs: Tensor, positions: Tensor, starts: Tensor, table: Tensor) -> Tensor:
    """Suffix queries, rotated for each document by their distance to its start: (H, Q, D, d).

    query_pairs: complex (H, Q, d/2), unrotated. positions: (Q,). starts: (H, Q, D). table: see Rope.
    Source: specification 4: keys rotated by their offset, queries by position - start.
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
    """Softmax weights of suffix tokens on the slots of all documents, then on prefix and suffix.

    document_query: (H, Q, D, d). query: (H, Q, d), for the tail. document_keys: (G, documents, length, d) per
    length class. padding: as in rank_for_suffix. tail_keys: (G, K, d) of prefix and suffix, the queries being
    its last rows. All rotated, queries scaled, one dtype. Returns (H, Q, P + K), slots in block order.
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
    """Values summed by suffix_weights (H, Q, P + K), slots in block order: (H, Q, d).

    document_values: (G, P, d). tail_values: (G, K, d).
    """
    num_kv_heads, num_slots, head_dim = document_values.shape
    rows = weights.view(num_kv_heads, -1, weights.shape[-1])
    to_tail = rows[..., num_slots:] @ tail_values
    return torch.baddbmm(to_tail, rows[..., :num_slots], document_values).view(*weights.shape[:2], head_dim)
