"""What the layers of one prompt under one method share, and the row that carries it with its cache."""

import math
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from pine_engine.attention.blocks import BlockLayout, build_blocks
from pine_engine.attention.kv_cache import KVCache
from pine_engine.attention.trace import TraceRecorder
from pine_engine.errors import ModelError
from pine_engine.methods.plan import AttentionPlan
from pine_engine.network.rope import LayerRopes, Rope, from_pairs
from pine_engine.network.wiring import Wiring


@dataclass(frozen=True)
class Rotation:
    """How one layer rotates; table: complex (positions, d/2), see Rope."""

    rope: Rope
    table: Tensor

    def rotate(self, vectors: Tensor, positions: Tensor) -> Tensor:
        """Unrotated vectors (heads, n, d) rotated to positions (n,), in pair layout and the table's dtype."""
        pairs = self.rope.to_pairs(vectors.to(self.table.real.dtype))
        return from_pairs(pairs * self.table[positions])


@dataclass(frozen=True)
class PromptState:
    """What all layers of one prompt under one method share.

    wiring: the network that reads it.
    positions: int64 (n + room for decoded tokens,), the position of every token as a query.
    compute_dtype: float32, or float64 for a float64 model: ranking and merging are never done in less.
    block_layout: for methods that promise invariance or lay documents out; else None.
    tables: for each kind of rope its table; none where the model's rotation is all there is.
    padding: (P,), 0 for slots with tokens and -inf for padding; None if no query need tell them apart.
    stored_order: physical index of each document token in the order the suffix reads them, for methods
        that promise invariance and do not rank; None for the physical order.
    suffix_shift: int64, how much farther than it was encoded the suffix sees each of these tokens; None
        if nowhere.
    key_bias: (n + room,), logarithm of every key's weight for the suffix; None if all weigh the same.
    copies: this state on other devices, for a model that is spread over several.
    """

    plan: AttentionPlan
    wiring: Wiring
    recorder: TraceRecorder | None
    positions: Tensor
    compute_dtype: torch.dtype
    block_layout: BlockLayout | None
    tables: tuple[Tensor, ...]
    padding: Tensor | None
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

    def rope(self, layer: int) -> Rope:
        """The rope of a layer."""
        return self.wiring.ropes[layer]

    def rotation(self, layer: int) -> Rotation:
        """How a layer rotates, where it is not the model alone that does."""
        ropes = self.wiring.ropes
        return Rotation(ropes[layer], self.tables[ropes.of_layer[layer]])

    def position_ids(self, first: int, count: int) -> Tensor:
        """Position ids for the model, (1, count), of tokens first .. first + count - 1."""
        ids = self.positions[None, first : first + count]
        return ids if self.plan.model_rotates else torch.zeros_like(ids)


def _move(value: Any, device: torch.device) -> Any:
    """A state, or a part of it, with its tensors on a device."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, tuple):
        return tuple(_move(part, device) for part in value)
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
    """Dimension of one attention head. Raises ModelError if layers differ in it."""
    config = model.config.get_text_config()
    try:
        head_dim: int | None = getattr(config, "head_dim", None)
    except Exception as error:  # transformers' own, for what is not the same in all layers
        raise ModelError(
            f"{type(model).__name__}: the heads of its layers differ in their dimensions, which is not "
            "supported"
        ) from error
    return head_dim or config.hidden_size // config.num_attention_heads


def new_state(
    plan: AttentionPlan,
    *,
    wiring: Wiring,
    room: int,
    recorder: TraceRecorder | None,
) -> PromptState:
    """The shared state of one prompt; room is how many tokens may follow it."""
    model = wiring.network
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
        wiring=wiring,
        recorder=recorder,
        positions=positions,
        compute_dtype=dtype,
        block_layout=blocks,
        tables=_tables(wiring.ropes, len(positions), head_dim_of(model), dtype, device)
        if lays_out or shift is not None
        else (),
        padding=_padding(blocks, dtype) if blocks and plan.is_ranked else None,
        stored_order=stored_order,
        suffix_shift=shift,
        key_bias=_key_bias(plan, positions, dtype),
    )


def _tables(
    ropes: LayerRopes, length: int, head_dim: int, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, ...]:
    return tuple(rope.table(length, head_dim, dtype).to(device) for rope in ropes.kinds)


def _padding(blocks: BlockLayout, dtype: torch.dtype) -> Tensor | None:
    if not blocks.is_padding.any():
        return None
    bias = torch.zeros(blocks.is_padding.shape, dtype=dtype, device=blocks.is_padding.device)
    return bias.masked_fill_(blocks.is_padding, -math.inf)


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
