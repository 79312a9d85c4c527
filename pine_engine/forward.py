"""One pass of a transformers model through our attention function, registered under one name.

The model is run with position ids of our choice: the real positions for methods whose keys stand at
one position for all queries, zeros where every query has its own. Rotation by zero is the identity, so
queries and keys then arrive unrotated and are rotated here. What a pass needs travels as an argument
of `forward`; nothing is stored on modules.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel

from pine_engine.attention import (
    Scoring,
    attention_weights,
    causal_tail,
    document_queries,
    lay_out,
    merge_documents,
    merged_weights,
    positions_of,
    rank_for_documents,
    rank_for_suffix,
    tail_mask,
)
from pine_engine.blocks import BlockLayout, build_blocks
from pine_engine.errors import ModelError
from pine_engine.kv_cache import DocumentBlocks, KVCache, LayerCache, new_layer
from pine_engine.layout import TokenLayout
from pine_engine.plan import AttentionPlan
from pine_engine.rope import Rope, as_pairs, from_pairs
from pine_engine.trace import TraceRecorder

NAME = "pine_engine"
"""Name of our attention function in transformers' registry."""

SUFFIX_SCORES = 8_000_000
"""Scores per chunk of suffix queries, so that a long suffix needs no more memory than this at once."""


class Pass(Protocol):
    """What the registered attention function calls in every layer."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scoring: Scoring) -> Tensor:
        """query (B, H, n, d), key and value (B, G, n, d) to the attention output (B, H, n, d)."""


def _attention_function(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    pine_pass: Pass,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    if s_aux is not None:
        raise ModelError("its attention has sinks (learned scores without a key), which are not supported")
    if attention_mask is not None:  # not ours, which is None
        raise ModelError("its attention masks or biases keys in a way of its own, which is not supported")
    output = pine_pass.attend(cast(int, module.layer_idx), query, key, value, Scoring(scaling, softcap))
    return output.transpose(1, 2).contiguous(), None


def _no_mask(*_: Any, **__: Any) -> None:
    """The attention function knows who sees whom; without this transformers would build masks."""


AttentionInterface.register(NAME, _attention_function)
AttentionMaskInterface.register(NAME, _no_mask)


@dataclass(frozen=True)
class PromptState:
    """What all layers of one prompt under one method share.

    positions: int64 (n + room for decoded tokens,), the position of every token as a query.
    compute_dtype: float32, or float64 for a float64 model: ranking and merging are never done in less.
    block_layout: for methods that promise invariance or lay documents out; else None.
    table: complex (positions, d/2), see Rope; None where the model's rotation is all there is.
    padding: for ranked methods, as in attention.merge_documents.
    stored_order: physical index of each document token in the order the suffix reads them, for methods
        that promise invariance and do not rank; None for the physical order.
    suffix_shift: int64, how much farther than it was encoded the suffix sees each of these tokens; None
        if nowhere.
    key_bias: (n + room,), logarithm of every key's weight for the suffix; None if all weigh the same.
    copies: this state on other devices, for a model that is spread over several.
    """

    plan: AttentionPlan
    rope: Rope
    recorder: TraceRecorder | None
    positions: Tensor
    compute_dtype: torch.dtype
    block_layout: BlockLayout | None
    table: Tensor | None
    padding: list[Tensor | None]
    stored_order: Tensor | None
    suffix_shift: Tensor | None
    key_bias: Tensor | None
    copies: dict[torch.device, "PromptState"] = field(default_factory=dict, repr=False, compare=False)

    def on(self, device: torch.device) -> "PromptState":
        """The same state with its tensors where a layer computes; copied once for each device."""
        if device == self.positions.device:
            return self
        if device not in self.copies:
            self.copies[device] = _move(self, device)
        return self.copies[device]

    @cached_property
    def stored_index(self) -> Tensor:
        """Physical index of each key that the suffix reads, in the order in which it is stored: (K,) with
        room for decoded tokens. Slots of document blocks come first."""
        layout = self.plan.layout
        index = torch.arange(len(self.positions), device=self.positions.device)
        prefix, suffix = index[: layout.prefix_length], index[layout.documents_end :]
        if self.plan.is_ranked and self.block_layout:
            return torch.cat((self.block_layout.token_index, prefix, suffix))
        return index if self.stored_order is None else torch.cat((prefix, self.stored_order, suffix))

    @cached_property
    def stored_segment(self) -> Tensor:
        """One for the segment of each of these keys, else zero: (K, 1 + D + 1), prefix and suffix outside."""
        segments = self.plan.segments.to(self.positions.device)
        # Tokens behind the prompt are suffix too.
        of_key = segments[self.stored_index.clamp(max=len(segments) - 1)]
        count = self.plan.layout.num_documents + 2
        return nn.functional.one_hot(of_key, count).to(self.compute_dtype)

    def position_ids(self, first: int, count: int) -> Tensor:
        """Position ids for the model, (1, count), of tokens first .. first + count - 1."""
        ids = self.positions[None, first : first + count]
        return ids if self.plan.model_rotates else torch.zeros_like(ids)


def _move(value: Any, device: torch.device) -> Any:
    """A state, or a part of it, with its tensors on a device."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, list):
        return [_move(part, device) for part in value]
    if isinstance(value, PromptState | BlockLayout):
        return replace(
            value, **{part.name: _move(getattr(value, part.name), device) for part in fields(value)}
        )
    return value


def input_device(model: PreTrainedModel) -> torch.device:
    """Where a model takes its tokens. If its embedding is offloaded to disk, that is the first device it
    computes on: accelerate carries tokens there, but not away from `meta`, where the embedding says it is."""
    if model.device.type != "meta":
        return model.device
    places = getattr(model, "hf_device_map", {}).values()
    return torch.device(next((place for place in places if place not in ("cpu", "disk")), "cpu"))


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
    device = input_device(model)
    dtype = torch.promote_types(model.dtype, torch.float32)
    positions = plan.query_positions(room).to(device)
    lays_out = not plan.model_rotates
    promises = plan.method.promises_invariance
    blocks = build_blocks(plan.layout, device) if promises or lays_out else None
    stored_order = shift = None
    if blocks and promises and not plan.is_ranked:
        stored_order = blocks.token_index[~blocks.is_padding]
        shift = _suffix_shift(plan, blocks)
    return PromptState(
        plan=plan,
        rope=rope,
        recorder=recorder,
        positions=positions,
        compute_dtype=dtype,
        block_layout=blocks,
        table=rope.table(len(positions), head_dim_of(model), dtype).to(device)
        if lays_out or shift is not None
        else None,
        padding=_padding(blocks, dtype) if blocks and plan.is_ranked else [],
        stored_order=stored_order,
        suffix_shift=shift,
        key_bias=_key_bias(plan, positions, dtype),
    )


def _padding(blocks: BlockLayout, dtype: torch.dtype) -> list[Tensor | None]:
    """0 for tokens and -inf for padding, (documents, 1, length) per length class, None without padding."""
    padding: list[Tensor | None] = []
    for part in blocks.split(blocks.is_padding[:, None]):
        bias = torch.zeros(part.shape, dtype=dtype, device=part.device).masked_fill_(part, -math.inf)
        padding.append(bias.mT if part.any() else None)
    return padding


def _suffix_shift(plan: AttentionPlan, blocks: BlockLayout) -> Tensor | None:
    assert plan.suffix_document_starts is not None
    shift = (plan.suffix_document_starts - plan.query_starts).to(blocks.order.device)[blocks.order]
    return shift[blocks.document[~blocks.is_padding]] if shift.any() else None


def _key_bias(plan: AttentionPlan, positions: Tensor, dtype: torch.dtype) -> Tensor | None:
    if plan.method.divided == "nothing":
        return None
    bias = torch.zeros(len(positions), dtype=dtype, device=positions.device)
    first = 0 if plan.method.divided == "documents_and_prefix" else plan.layout.prefix_length
    bias[first : plan.layout.documents_end] = -math.log(plan.layout.num_documents)
    return bias


@dataclass(frozen=True)
class Row:
    """One prompt under one method, on its way: the state and the cache that prefill fills."""

    state: PromptState
    cache: KVCache

    def num_read(self, layer: int = 0) -> int:
        """How many tokens of the prompt and its continuation a layer has read."""
        cache, layout = self.cache.layers[layer], self.state.plan.layout
        in_blocks = 0 if cache.blocks is None else layout.documents_end - layout.prefix_length
        return cache.length + in_blocks

    def on(self, device: torch.device) -> "Row":
        """The same row with its state on a device; layers of the cache stay where they are."""
        state = self.state.on(device)
        return self if state is self.state else replace(self, state=state)


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
    positions = state.positions[first : first + count]
    if cache.blocks is None:
        if not state.plan.model_rotates:
            query, key = (_rotate(state, part, positions).to(part.dtype) for part in (query, key))
        cache.append(key, value)
        keys, values = cache.keys[:, : cache.length], cache.values[:, : cache.length]
        bias = None if state.key_bias is None else state.key_bias[: cache.length]
        if state.recorder:
            _record_suffix(state, state.recorder, layer, first, query, keys, scoring, bias)
        return causal_tail(query, keys, values, scoring, bias)

    assert state.table is not None and state.block_layout is not None
    dtype = cache.keys.dtype
    turn = state.table[positions]
    pairs = state.rope.to_pairs(query.to(dtype) * scoring.scale)
    rotated = from_pairs(pairs * turn)
    cache.append(from_pairs(state.rope.to_pairs(key.to(dtype)) * turn), value.to(dtype))
    outputs = []
    seen_before = cache.length - count
    chunk = max(1, SUFFIX_SCORES // (query.shape[0] * len(state.block_layout.document)))
    for start in range(0, count, chunk):
        stop = min(start + chunk, count)
        part = slice(start, stop)
        visible = seen_before + stop
        document_query = _turn_to_documents(row, layer, pairs[:, part], positions[part])
        tail = cache.keys[:, :visible], cache.values[:, :visible]
        output, shares = merge_documents(
            document_query,
            rotated[:, part],
            cache.blocks,
            state.padding,
            tail,
            scoring.softcap,
            state.plan.layout.prefix_length if state.recorder else None,
        )
        outputs.append(output)
        if state.recorder and shares is not None:
            state.recorder.record_attention(layer, state.block_layout.to_input_order(shares, 2, first=1))
            for asked, rows in state.recorder.asked(layer, first + start, stop - start):
                weights = merged_weights(
                    document_query, rotated[:, part], cache.blocks, state.padding, tail[0], scoring.softcap
                )[asked.head, rows]
                index = state.stored_index[: weights.shape[-1]]
                state.recorder.record_tokens(asked, first + start + rows.start, weights, index)
    return (outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=1)).to(query.dtype)


def _record_suffix(
    state: PromptState,
    recorder: TraceRecorder,
    layer: int,
    first: int,
    query: Tensor,
    keys: Tensor,
    scoring: Scoring,
    bias: Tensor | None,
) -> None:
    """Attention of a continuation over plain keys: of its suffix tokens, and of whatever was asked for."""
    index = state.stored_index[: keys.shape[1]]
    _record_asked(recorder, layer, first, query, keys, index, scoring, bias)
    suffix = query[:, max(0, state.plan.layout.documents_end - first) :]
    weights = attention_weights(suffix, keys, scoring, tail_mask(suffix, keys.shape[1], bias))
    recorder.record_attention(layer, weights @ state.stored_segment[: keys.shape[1]])


def _record_asked(
    recorder: TraceRecorder,
    layer: int,
    first: int,
    query: Tensor,
    keys: Tensor,
    key_index: Tensor,
    scoring: Scoring,
    bias: Tensor | None = None,
) -> None:
    """Token-level weights asked for, of queries (H, Q, d) from `first` on, the last of their keys.

    keys: (G, K, d) or (H, K, d). key_index: (K,), or (H, K) where heads lay keys out on their own.
    """
    for asked, rows in recorder.asked(layer, first, query.shape[1]):
        head = asked.head // (query.shape[0] // keys.shape[0])
        own = query[asked.head : asked.head + 1]
        mask = tail_mask(own, keys.shape[1], bias)
        weights = attention_weights(own, keys[head : head + 1], scoring, mask)[0, rows]
        index = key_index if key_index.dim() == 1 else key_index[head]
        recorder.record_tokens(asked, first + rows.start, weights, index)


def _rotate(state: PromptState, vectors: Tensor, positions: Tensor) -> Tensor:
    """Unrotated vectors (heads, n, d) rotated to positions (n,), in pair layout and compute dtype."""
    assert state.table is not None
    return from_pairs(state.rope.to_pairs(vectors.to(state.compute_dtype)) * state.table[positions])


def _turn_to_documents(row: Row, layer: int, pairs: Tensor, positions: Tensor) -> Tensor:
    """Scaled suffix queries (H, Q, d/2), unrotated, turned to where they see each document: (H, Q, D, d)."""
    state, blocks = row.state, row.cache.layers[layer].blocks
    assert blocks and state.block_layout and state.table is not None
    query = from_pairs(pairs)
    if state.rope.scale != 1:
        query = query / state.rope.scale**2
    ranking = rank_for_suffix(
        query,
        blocks.unrotated_keys,
        state.padding,
        state.block_layout,
        state.plan.layout.documents_end,
        reverse=state.plan.is_reversed,
    )
    if state.recorder:
        state.recorder.record_suffix(layer, state.block_layout, ranking.importance, ranking.starts)
    return document_queries(pairs, positions, ranking.starts, state.table)


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


@dataclass(frozen=True)
class PrefillPass:
    """A whole prompt under one method; fills the row's cache.

    prefix_of: a row that has read the same prefix, whose keys and values are used again: the pass then
    begins with the documents. Rows of the batch behind the prompt are padding and get zeros.
    """

    row: Row
    room: int
    on_layer: Callable[[int], None]
    prefix_of: Row | None = None

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scoring: Scoring) -> Tensor:
        """See Pass; the batch has one row."""
        self.on_layer(layer)
        here = replace(self, row=self.row.on(query.device))
        return here._attend(layer, query, key, value, scoring)

    def _attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scoring: Scoring) -> Tensor:
        plan = self.row.state.plan
        layout = plan.layout
        skipped = layout.prefix_length if self.prefix_of else 0
        count = layout.num_tokens - skipped
        output = torch.zeros_like(query)
        query, key, value = (part[0, :, :count] for part in (query, key, value))
        if plan.model_rotates and plan.method.mask == "causal":
            cache = self._open_layer(key, blocks=None)
            if self.prefix_of:
                cache.append(*self._read_prefix(layer, key.dtype))
            output[0, :, :count] = attend_continuation(self.row, layer, query, key, value, scoring)
            return output

        if self.prefix_of:
            prefix = self._read_prefix(layer, key.dtype)
        else:
            prefix = self._attend_prefix(layer, query, key, value, scoring, output[0])
        documents = slice(layout.prefix_length - skipped, layout.documents_end - skipped)
        attend_documents = self._isolated if plan.model_rotates else self._placed
        attend_documents(
            layer,
            query[:, documents],
            key[:, documents],
            value[:, documents],
            prefix,
            scoring,
            output[0, :, documents],
        )
        suffix = slice(documents.stop, count)
        output[0, :, suffix] = attend_continuation(
            self.row, layer, query[:, suffix], key[:, suffix], value[:, suffix], scoring
        )
        return output

    def _open_layer(self, like: Tensor, *, blocks: DocumentBlocks | None) -> LayerCache:
        """A new layer of the cache with room for all that is not in blocks, in the dtype it is read in."""
        layout = self.row.state.plan.layout
        in_blocks = layout.documents_end - layout.prefix_length if blocks else 0
        cache = new_layer(
            num_kv_heads=like.shape[0],
            capacity=layout.num_tokens - in_blocks + self.room,
            head_dim=like.shape[-1],
            dtype=self.row.state.compute_dtype if blocks else like.dtype,
            device=like.device,
            blocks=blocks,
        )
        self.row.cache.layers.append(cache)
        return cache

    def _read_prefix(self, layer: int, model_dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Rotated keys and values (G, S, d) of the prefix from the row that has read it, as this row's
        method uses them: as the model gives them, or in pair layout and compute dtype."""
        assert self.prefix_of
        state, theirs = self.row.state, self.prefix_of.state
        cache, length = self.prefix_of.cache.layers[layer], state.plan.layout.prefix_length
        keys, values = (part[:, :length].to(state.compute_dtype) for part in (cache.keys, cache.values))
        if state.plan.model_rotates:
            keys = keys if theirs.plan.model_rotates else state.rope.to_vectors(as_pairs(keys))
            return keys.to(model_dtype), values.to(model_dtype)
        return (from_pairs(state.rope.to_pairs(keys)) if theirs.plan.model_rotates else keys), values

    def _attend_prefix(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scoring: Scoring, output: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Attention of the prefix, the same in all methods; its keys and values as in _read_prefix."""
        state = self.row.state
        rows = slice(0, state.plan.layout.prefix_length)
        query, key, value = query[:, rows], key[:, rows], value[:, rows]
        keys, values = key, value
        if not state.plan.model_rotates:
            positions = state.positions[rows]
            query = _rotate(state, query, positions).to(query.dtype)
            keys, values = _rotate(state, key, positions), value.to(state.compute_dtype)
        output[:, rows] = causal_tail(query, keys.to(key.dtype), value, scoring)
        if state.recorder:
            index = torch.arange(rows.stop, device=key.device)
            _record_asked(state.recorder, layer, 0, query, keys, index, scoring)
        return keys, values

    def _isolated(
        self,
        layer: int,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        prefix: tuple[Tensor, Tensor],
        scoring: Scoring,
        output: Tensor,
    ) -> None:
        """Documents of which none sees another; the model has rotated. Source: specification 3.2, 3.3."""
        state = self.row.state
        layout = state.plan.layout
        for rows in _document_rows(layout):
            keys, values = (
                torch.cat((front, part[:, rows]), dim=1)
                for front, part in zip(prefix, (key, value), strict=True)
            )
            output[:, rows] = causal_tail(query[:, rows].contiguous(), keys, values, scoring)
            if state.recorder:
                start = rows.start + layout.prefix_length
                index = torch.arange(start, rows.stop + layout.prefix_length, device=key.device)
                index = torch.cat((torch.arange(layout.prefix_length, device=key.device), index))
                _record_asked(state.recorder, layer, start, query[:, rows], keys, index, scoring)
        if state.stored_order is not None:
            stored = state.stored_order - layout.prefix_length
            key, value = key[:, stored], value[:, stored]
        if state.suffix_shift is not None:
            assert state.table is not None
            turned = state.rope.to_pairs(key.to(state.compute_dtype)) * state.table[state.suffix_shift]
            key = state.rope.to_vectors(turned).to(key.dtype)
        cache = self._open_layer(key, blocks=None)
        cache.append(*prefix)
        cache.append(key, value)

    def _placed(
        self,
        layer: int,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        prefix: tuple[Tensor, Tensor],
        scoring: Scoring,
        output: Tensor,
    ) -> None:
        """Documents that see others, each at places of its own (specification 3.5 to 3.8).

        For each query document the keys are laid out once from the farthest to the closest, prefix first
        and own document last, which a fused call takes. Per head where heads rank on their own. Queries
        are brought into block order and copied for each document, because kernels may treat the same row
        otherwise at another place in memory.
        """
        state = self.row.state
        plan, blocks, table = state.plan, state.block_layout, state.table
        assert blocks is not None and table is not None
        first, end = plan.layout.prefix_length, plan.layout.documents_end
        dtype = state.compute_dtype

        stored = blocks.token_index - first
        query_pairs = state.rope.to_pairs(query[:, stored].to(dtype))
        rotated = from_pairs(query_pairs * table[state.positions[blocks.token_index]]).to(query.dtype)
        key_pairs = state.rope.to_pairs(key[:, stored].to(dtype))
        values = torch.cat((prefix[1].to(value.dtype), value[:, stored]), dim=1)
        starts = self._document_starts(layer, query_pairs, key_pairs, scoring)
        in_input_order = _document_rows(plan.layout)

        # Rows of (heads held, prefix + slots), the prefix rotated already.
        source = torch.cat((as_pairs(prefix[0]), key_pairs), dim=1)
        heads_held = query.shape[0] if plan.is_ranked else key.shape[0]
        head_offset = torch.arange(heads_held, device=key.device) // (heads_held // key.shape[0])
        head_offset = head_offset[:, None] * source.shape[1]
        prefix_index = torch.arange(first, device=key.device).expand(heads_held, -1)
        still = torch.ones_like(table[:first])
        visible = plan.visible.to(blocks.order.device)[blocks.order][:, blocks.order]
        keys_out, values_out = source.new_empty(0), values.new_empty(0)
        for document, index_in_input in enumerate(blocks.order.tolist()):
            own_rows = in_input_order[index_in_input]
            own_query = rotated[:, blocks.rows[document]].contiguous()
            slots = lay_out(starts[document], document, visible[document], blocks)
            index = torch.cat((prefix_index, (slots + first).expand(heads_held, -1)), dim=1)
            index = (index + head_offset).flatten()
            if len(index) != len(keys_out):  # other documents see more or fewer
                keys_out = source.new_empty(len(index), source.shape[-1])
                values_out = values.new_empty(len(index), values.shape[-1])
            torch.index_select(source.flatten(0, 1), 0, index, out=keys_out)
            torch.index_select(values.flatten(0, 1), 0, index, out=values_out)
            if plan.tiles:
                turn = torch.cat((still, table[first:end]))
            else:
                turn = table[positions_of(slots, starts[document], blocks)]
                turn = torch.cat((still.expand(len(turn), -1, -1), turn), dim=1)
            placed = from_pairs(keys_out.view(heads_held, -1, source.shape[-1]).mul_(turn)).to(query.dtype)
            output[:, own_rows] = causal_tail(
                own_query, placed, values_out.view(heads_held, -1, values.shape[-1]), scoring
            )
            if state.recorder:
                physical = torch.cat((prefix_index[: len(slots)], blocks.token_index[slots]), dim=1)
                _record_asked(
                    state.recorder,
                    layer,
                    first + own_rows.start,
                    own_query,
                    placed,
                    physical.expand(heads_held, -1),
                    scoring,
                )
        self._keep(key, value, key_pairs, values[:, first:], prefix)

    def _document_starts(
        self, layer: int, query_pairs: Tensor, key_pairs: Tensor, scoring: Scoring
    ) -> Tensor:
        """Start of document b as seen from document a, int64 (D, H, D), or (D, 1, D) if all heads agree;
        both in block order, as the slots of query_pairs (H, P, d/2) and key_pairs (G, P, d/2)."""
        state = self.row.state
        plan, blocks = state.plan, state.block_layout
        assert blocks is not None
        if plan.document_starts is not None:
            order = blocks.order
            return plan.document_starts.to(order.device)[order][:, order][:, None]
        query = from_pairs(query_pairs) * (scoring.scale / state.rope.scale**2)
        ranked = rank_for_documents(
            [query[:, part].reshape(key_pairs.shape[0], -1, query.shape[-1]) for part in blocks.rows],
            from_pairs(key_pairs),
            blocks,
            plan.layout.documents_end,
            reverse=plan.is_reversed,
        )
        if state.recorder:
            state.recorder.record_documents(layer, blocks, ranked.importance, ranked.starts)
        return ranked.starts

    def _keep(
        self, key: Tensor, value: Tensor, key_pairs: Tensor, values: Tensor, prefix: tuple[Tensor, Tensor]
    ) -> None:
        """Fills the cache: keys where the suffix sees them, or, where it ranks, by document and offset.

        key, value: (G, documents, d) in physical order; key_pairs, values: the same by slot.
        """
        state = self.row.state
        plan, blocks, table = state.plan, state.block_layout, state.table
        assert blocks is not None and table is not None
        if plan.suffix_document_starts is not None:
            layout = plan.layout
            moved = plan.suffix_document_starts - torch.from_numpy(layout.document_starts)
            moved = torch.repeat_interleave(moved, torch.from_numpy(layout.lengths))
            positions = moved + torch.arange(layout.prefix_length, layout.documents_end)
            cache = self._open_layer(key, blocks=None)
            cache.append(*prefix)
            cache.append(_rotate(state, key, positions.to(key.device)), value)
            return
        document_blocks = DocumentBlocks(
            keys=blocks.split(from_pairs(key_pairs * table[blocks.offset])),
            values=blocks.split(values.to(state.compute_dtype)),
            unrotated_keys=blocks.split(from_pairs(key_pairs)),
        )
        self._open_layer(key, blocks=document_blocks).append(prefix[0], prefix[1].to(state.compute_dtype))


def _document_rows(layout: TokenLayout) -> list[slice]:
    """Where each document's tokens are, counted from the first document's first token."""
    starts = (layout.document_starts - layout.prefix_length).tolist()
    return [slice(start, start + len(ids)) for start, ids in zip(starts, layout.documents, strict=True)]
