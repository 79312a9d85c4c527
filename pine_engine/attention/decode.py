"""Tokens that follow what a prompt has read: its suffix, decoded tokens, given answers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pine_engine.attention.arithmetic import (
    apply_weights,
    causal_tail,
    document_queries,
    rank_for_suffix,
    suffix_weights,
    weights_by_segment,
)
from pine_engine.attention.recording import record_suffix
from pine_engine.attention.state import Row
from pine_engine.network.registration import Scoring
from pine_engine.network.rope import from_pairs

SUFFIX_SCORES = 4_000_000
"""Scores per chunk of suffix queries, so that a long suffix needs no more memory than this at once."""


def attend_continuation(
    row: Row, layer: int, query: Tensor, key: Tensor, value: Tensor, scoring: Scoring
) -> Tensor:
    """Attention of tokens that continue a sequence: suffix at prefill, decoded tokens, given answers.

    query (H, Q, d), key and value (G, Q, d) as the model gives them. Appends to the cache and returns
    (H, Q, d).
    """
    state, cache = row.state, row.cache.layers[layer]
    count = query.shape[1]
    first = row.num_read(layer)
    if cache.blocks is None:
        if not state.plan.model_rotates:
            positions, rotation = state.positions[first : first + count], state.rotation(layer)
            query, key = (rotation.rotate(part, positions).to(part.dtype) for part in (query, key))
        cache.append(key, value)
        keys, values = cache.keys[:, : cache.length], cache.values[:, : cache.length]
        bias = None if state.key_bias is None else state.key_bias[: cache.length]
        if state.recorder:
            record_suffix(state, state.recorder, layer, first, query, keys, scoring, bias)
        return causal_tail(query, keys, values, scoring, bias)

    assert state.block_layout is not None
    rotation = state.rotation(layer)
    dtype, num_heads = cache.keys.dtype, query.shape[0]
    # Once for both: decoding takes as long as its small operations are many.
    pairs = rotation.rope.to_pairs(torch.cat((query.to(dtype) * scoring.scale, key.to(dtype))))
    positions = state.positions[first : first + count]
    turned = from_pairs(pairs * rotation.table[positions])
    cache.append(turned[num_heads:], value.to(dtype))
    pairs, rotated = pairs[:num_heads], turned[:num_heads]
    outputs = []
    seen_before = cache.length - count
    chunk = max(1, SUFFIX_SCORES // (num_heads * len(state.block_layout.document)))
    for start in range(0, count, chunk):
        stop = min(start + chunk, count)
        part = slice(start, stop)
        visible = seen_before + stop
        document_query = _turn_to_documents(row, layer, pairs[:, part], positions[part])
        weights = suffix_weights(
            document_query,
            rotated[:, part],
            cache.blocks.keys,
            state.padding,
            cache.keys[:, :visible],
            scoring.softcap,
        )
        outputs.append(apply_weights(weights, cache.blocks.values, cache.values[:, :visible]))
        if state.recorder:
            shares = weights_by_segment(weights, state.block_layout, state.plan.layout.prefix_length)
            state.recorder.record_attention(layer, state.block_layout.to_input_order(shares, 2, first=1))
            for asked, rows in state.recorder.asked(layer, first + start, stop - start):
                index = state.stored_index[: weights.shape[-1]]
                state.recorder.record_tokens(
                    asked, first + start + rows.start, weights[asked.head, rows], index
                )
    return (outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=1)).to(query.dtype)


def _turn_to_documents(row: Row, layer: int, pairs: Tensor, positions: Tensor) -> Tensor:
    """Scaled suffix queries (H, Q, d/2), unrotated, turned to where they see each document: (H, Q, D, d)."""
    state, blocks = row.state, row.cache.layers[layer].blocks
    assert blocks and state.block_layout
    rotation = state.rotation(layer)
    ranking = rank_for_suffix(
        from_pairs(rotation.rope.unscaled(pairs)),
        blocks.unrotated_keys,
        state.padding,
        state.block_layout,
        state.plan.layout.documents_end,
        kind=state.plan.method.importance,
        reverse=state.plan.is_reversed,
    )
    if state.recorder:
        state.recorder.record_suffix(layer, state.block_layout, ranking.importance, ranking.starts)
    return document_queries(pairs, positions, ranking.starts, rotation.table)


@dataclass(frozen=True)
class ContinuationPass:
    """Tokens that follow prompts already read: one row per prompt, None for a row that has ended.

    The batch may have more rows than there are prompts; they count as ended.
    """

    rows: Sequence[Row | None]
    on_layer: Callable[[int], None]

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scoring: Scoring) -> Tensor:
        """See Pass."""
        self.on_layer(layer)
        output = torch.zeros_like(query)
        for index, row in enumerate(self.rows):
            if row is not None:
                output[index] = attend_continuation(
                    row.on(query.device), layer, query[index], key[index], value[index], scoring
                )
        return output
