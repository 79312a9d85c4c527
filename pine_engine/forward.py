"""One pass of a transformers model through our attention function, registered under one name.

The model is run with position ids of our choice: the real positions for methods whose keys stand at
one position for all queries, zeros where every query has its own. Rotation by zero is the identity, so
queries and keys then arrive unrotated and are rotated here. What a pass needs travels as an argument
of `forward`; nothing is stored on modules.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel

from pine_engine.attention import (
    causal_tail,
    document_queries,
    merge_documents,
    place,
    rank_for_documents,
    rank_for_suffix,
)
from pine_engine.blocks import BlockLayout, build_blocks
from pine_engine.kv_cache import DocumentBlocks, KVCache, LayerCache, new_layer
from pine_engine.plan import AttentionPlan
from pine_engine.rope import Rope, from_pairs
from pine_engine.trace import TraceRecorder

NAME = "pine_engine"
"""Name of our attention function in transformers' registry."""

SUFFIX_SCORES = 8_000_000
"""Scores per chunk of suffix queries, so that a long suffix needs no more memory than this at once."""


class Pass(Protocol):
    """What the registered attention function calls in every layer."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        """query (B, H, n, d), key and value (B, G, n, d) to the attention output (B, H, n, d)."""


def _attention_function(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    pine_pass: Pass,
    **_: Any,
) -> tuple[Tensor, None]:
    output = pine_pass.attend(cast(int, module.layer_idx), query, key, value, scaling)
    return output.transpose(1, 2).contiguous(), None


def _no_mask(*_: Any, **__: Any) -> None:
    """The attention function knows who sees whom; without this transformers would build masks."""


AttentionInterface.register(NAME, _attention_function)
AttentionMaskInterface.register(NAME, _no_mask)


@dataclass(frozen=True)
class PromptState:
    """What all layers of one prompt under one method share.

    block_layout, padding: only for methods that promise invariance; padding as in attention.merge_documents.
    positions: int64 (n + room for decoded tokens,), the position of every token as a query.
    compute_dtype: float32, or float64 for a float64 model: ranking and merging are never done in less.
    table: complex (positions, d/2), see Rope; only for methods that rank.
    """

    plan: AttentionPlan
    block_layout: BlockLayout | None
    padding: list[Tensor]
    positions: Tensor
    compute_dtype: torch.dtype
    rope: Rope
    table: Tensor | None
    recorder: TraceRecorder | None

    @property
    def is_ranked(self) -> bool:
        """True if every query has its own document starts, so that we rotate and not the model."""
        return self.plan.document_starts is None

    def position_ids(self, first: int, count: int) -> Tensor:
        """Position ids for the model, (1, count), of tokens first .. first + count - 1."""
        ids = self.positions[None, first : first + count]
        return torch.zeros_like(ids) if self.is_ranked else ids


def head_dim_of(model: PreTrainedModel) -> int:
    """Dimension of one attention head."""
    config = model.config.get_text_config()
    head_dim: int | None = getattr(config, "head_dim", None)
    return head_dim or config.hidden_size // config.num_attention_heads


def new_state(
    plan: AttentionPlan,
    *,
    rope: Rope,
    model: PreTrainedModel,
    room: int,
    recorder: TraceRecorder | None,
) -> PromptState:
    """The shared state of one prompt; room is how many tokens may follow it."""
    device = model.device
    dtype = torch.promote_types(model.dtype, torch.float32)
    promises = plan.method.promises_invariance
    block_layout = build_blocks(plan.layout, device) if promises else None
    padding = []
    if block_layout:
        bias = torch.zeros(len(block_layout.is_padding), dtype=dtype, device=device)
        bias.masked_fill_(block_layout.is_padding, float("-inf"))
        padding = [part.transpose(-1, -2) for part in block_layout.split(bias[:, None])]
    positions = plan.query_positions(room).to(device)
    is_ranked = plan.document_starts is None
    return PromptState(
        plan=plan,
        block_layout=block_layout,
        padding=padding,
        positions=positions,
        compute_dtype=dtype,
        rope=rope,
        table=rope.table(len(positions), head_dim_of(model), dtype) if is_ranked else None,
        recorder=recorder,
    )


@dataclass(frozen=True)
class Row:
    """One prompt under one method, on its way: the state and the cache that prefill fills."""

    state: PromptState
    cache: KVCache


def attend_continuation(
    row: Row, layer: int, query: Tensor, key: Tensor, value: Tensor, first: int, scaling: float
) -> Tensor:
    """Attention of tokens that continue a sequence: suffix at prefill, decoded tokens, given answers.

    query (H, Q, d), key and value (G, Q, d) as the model gives them; first: index of the first token in
    the prompt and its continuation. Appends to the cache and returns (H, Q, d).
    """
    state, cache = row.state, row.cache.layers[layer]
    if cache.blocks is None or state.block_layout is None:
        cache.append(key, value)
        return causal_tail(query, cache.keys[:, : cache.length], cache.values[:, : cache.length], scaling)

    dtype = cache.keys.dtype
    count = query.shape[1]
    positions = state.positions[first : first + count]
    rotated = query.to(dtype) * scaling
    key = key.to(dtype)
    pairs = None
    if state.table is not None:
        pairs = state.rope.to_pairs(rotated)
        rotated = from_pairs(pairs * state.table[positions])
        key = from_pairs(state.rope.to_pairs(key) * state.table[positions])
    cache.append(key, value.to(dtype))

    outputs = []
    seen_before = cache.length - count
    chunk = max(1, SUFFIX_SCORES // (query.shape[0] * len(state.block_layout.document)))
    for start in range(0, count, chunk):
        stop = min(start + chunk, count)
        part = slice(start, stop)
        if pairs is None:
            document_query = rotated[:, part, None]
        else:
            document_query = _rank_and_rotate(row, layer, pairs[:, part], positions[part])
        visible = seen_before + stop
        tail = (cache.keys[:, :visible], cache.values[:, :visible])
        outputs.append(merge_documents(document_query, rotated[:, part], cache.blocks, state.padding, tail))
    return torch.cat(outputs, dim=1).to(query.dtype)


def _rank_and_rotate(row: Row, layer: int, pairs: Tensor, positions: Tensor) -> Tensor:
    """Suffix queries rotated for each document, (H, Q, D, d), after ranking the documents."""
    state, blocks = row.state, row.cache.layers[layer].blocks
    assert blocks and blocks.unrotated_keys and state.block_layout and state.table is not None
    ranking = rank_for_suffix(
        from_pairs(pairs) / state.rope.scale**2,
        blocks.unrotated_keys,
        state.padding,
        state.block_layout,
        state.plan.layout.documents_end,
    )
    if state.recorder:
        state.recorder.record_suffix(layer, state.block_layout, ranking.importance, ranking.starts)
    return document_queries(pairs, positions, ranking.starts, state.table)


@dataclass(frozen=True)
class ContinuationPass:
    """Tokens that follow prompts already read: one row per prompt, None for a row that has ended.

    first: index of the first token in each row's prompt and continuation.
    """

    rows: Sequence[Row | None]
    first: int
    on_layer: Callable[[int], None]

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        """See Pass."""
        self.on_layer(layer)
        output = torch.zeros_like(query)
        for index, row in enumerate(self.rows):
            if row is not None:
                output[index] = attend_continuation(
                    row, layer, query[index], key[index], value[index], self.first, scaling
                )
        return output


@dataclass(frozen=True)
class PrefillPass:
    """A whole prompt under one method; fills the row's cache."""

    row: Row
    room: int
    on_layer: Callable[[int], None]

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        """See Pass; the batch has one row."""
        self.on_layer(layer)
        state = self.row.state
        query, key, value = query[0], key[0], value[0]
        if state.plan.method.mask == "causal":
            self._open_layer(key, blocks=None, tokens=state.plan.layout.num_tokens)
            return attend_continuation(self.row, layer, query, key, value, 0, scaling)[None]
        attend_documents = self._ranked if state.is_ranked else self._isolated
        output = torch.empty_like(query)
        attend_documents(layer, query, key, value, scaling, output)
        end = state.plan.layout.documents_end
        output[:, end:] = attend_continuation(
            self.row, layer, query[:, end:], key[:, end:], value[:, end:], end, scaling
        )
        return output[None]

    def _open_layer(self, like: Tensor, *, blocks: DocumentBlocks | None, tokens: int) -> LayerCache:
        cache = new_layer(
            num_kv_heads=like.shape[0],
            capacity=tokens + self.room,
            head_dim=like.shape[-1],
            like=like,
            blocks=blocks,
        )
        self.row.cache.layers.append(cache)
        return cache

    def _isolated(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float, output: Tensor
    ) -> None:
        """Prefix and documents where no document sees another; the model has rotated.

        Source: specification 3.2, 3.3.
        """
        state = self.row.state
        layout = state.plan.layout
        prefix = slice(0, layout.prefix_length)
        output[:, prefix] = causal_tail(query[:, prefix], key[:, prefix], value[:, prefix], scaling)
        for index in range(layout.num_documents):
            rows = layout.document_slice(index)
            keys = torch.cat((key[:, prefix], key[:, rows]), dim=1)
            values = torch.cat((value[:, prefix], value[:, rows]), dim=1)
            output[:, rows] = causal_tail(query[:, rows], keys, values, scaling)
        if state.block_layout is None:
            cache = self._open_layer(key, blocks=None, tokens=layout.num_tokens)
            cache.append(key[:, : layout.documents_end], value[:, : layout.documents_end])
            return
        dtype = state.compute_dtype
        stored = state.block_layout.token_index
        blocks = DocumentBlocks(
            keys=state.block_layout.split(key[:, stored].to(dtype)),
            values=state.block_layout.split(value[:, stored].to(dtype)),
            unrotated_keys=None,
        )
        tokens = layout.prefix_length + layout.suffix_length
        cache = self._open_layer(key.to(dtype), blocks=blocks, tokens=tokens)
        cache.append(key[:, prefix].to(dtype), value[:, prefix].to(dtype))

    def _ranked(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float, output: Tensor
    ) -> None:
        """Prefix and documents where every document sees all others, ranked (specification 3.5).

        For each query document the keys are laid out once per head in rank order, prefix first and
        own document last, which makes their positions one contiguous range for a fused call.
        """
        state = self.row.state
        layout, blocks, table = state.plan.layout, state.block_layout, state.table
        assert blocks is not None and table is not None
        num_heads, num_kv_heads = query.shape[0], key.shape[0]
        prefix, end = layout.prefix_length, layout.documents_end
        dtype = state.compute_dtype

        query_pairs = state.rope.to_pairs(query[:, :end].to(dtype))
        rotated = from_pairs(query_pairs * table[state.positions[:end]]).to(query.dtype)
        importance_query = from_pairs(query_pairs) * (scaling / state.rope.scale**2)
        stored = torch.cat((torch.arange(prefix, device=key.device), blocks.token_index))
        key_pairs = state.rope.to_pairs(key[:, stored].to(dtype))
        values = value[:, stored]

        prefix_keys = from_pairs(key_pairs[:, :prefix] * table[:prefix])
        output[:, :prefix] = causal_tail(
            rotated[:, :prefix], prefix_keys.to(query.dtype), values[:, :prefix], scaling
        )

        rows = [layout.document_slice(int(index)) for index in blocks.order]
        unrotated = from_pairs(key_pairs)[:, prefix:]
        ranked = rank_for_documents(
            [importance_query[:, row].reshape(num_kv_heads, -1, query.shape[-1]) for row in rows],
            unrotated,
            blocks,
            end,
        )
        if state.recorder:
            state.recorder.record_documents(layer, blocks, ranked.importance, ranked.starts)

        # Rows of (G, prefix + slots) for each query head, prefix first.
        head_offset = torch.arange(num_heads, device=key.device) // (num_heads // num_kv_heads)
        head_offset = head_offset[:, None] * key_pairs.shape[1]
        gathered = torch.empty(num_heads * end, key_pairs.shape[-1], dtype=key_pairs.dtype, device=key.device)
        gathered_values = torch.empty(num_heads * end, value.shape[-1], dtype=value.dtype, device=key.device)
        index = torch.arange(prefix, device=key.device).expand(num_heads, -1)
        for document, row in enumerate(rows):
            slots = place(ranked.starts[document], blocks, prefix) + prefix
            index_row = (torch.cat((index, slots), dim=1) + head_offset).flatten()
            torch.index_select(key_pairs.flatten(0, 1), 0, index_row, out=gathered)
            torch.index_select(values.flatten(0, 1), 0, index_row, out=gathered_values)
            placed = gathered.view(num_heads, end, -1).mul_(table[:end])
            output[:, row] = causal_tail(
                rotated[:, row],
                from_pairs(placed).to(query.dtype),
                gathered_values.view(num_heads, end, -1),
                scaling,
            )

        local = key_pairs[:, prefix:] * table[blocks.offset]
        document_blocks = DocumentBlocks(
            keys=blocks.split(from_pairs(local)),
            values=blocks.split(values[:, prefix:].to(dtype)),
            unrotated_keys=blocks.split(unrotated),
        )
        cache = self._open_layer(prefix_keys, blocks=document_blocks, tokens=prefix + layout.suffix_length)
        cache.append(prefix_keys, values[:, :prefix].to(dtype))
