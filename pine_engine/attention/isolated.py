"""No document sees another, and the model rotates: NIA, PCW and SP. Source: specification 3.2, 3.3."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from pine_engine.attention.arithmetic import causal_tail, copied
from pine_engine.attention.blocks import build_blocks
from pine_engine.attention.causal import CausalAttention
from pine_engine.attention.kv_cache import LayerCache, new_layer
from pine_engine.attention.recorder import TraceRecorder
from pine_engine.attention.strategy import KeysValues, LayerInput, Rotation, Strategy, StrategyContext
from pine_engine.methods.plan import AttentionPlan
from pine_engine.prompts.layout import IntArray, TokenLayout


@dataclass(frozen=True)
class KeyShift:
    """Turns document keys to where the suffix sees them; by: int64 (documents' tokens,), in positions."""

    rotations: tuple[Rotation, ...]
    by: Tensor

    def move(self, layer: int, keys: Tensor) -> Tensor:
        """Keys (G, documents' tokens, d) that the model has rotated, rotated on."""
        rotation = self.rotations[layer]
        pairs = rotation.rope.to_pairs(keys.to(rotation.table.real.dtype)) * rotation.table[self.by]
        return rotation.rope.to_vectors(pairs).to(keys.dtype)


@dataclass(frozen=True)
class IsolatedAttention(Strategy):
    """Every document reads the prefix and itself; the suffix reads everything.

    order: int64 (documents' tokens,), which of them is stored where, counted from the first one: in block
    order for methods that promise invariance. shift: None if the suffix sees all documents where they have
    seen themselves. suffix: how whatever follows the documents reads.
    """

    layout: TokenLayout
    order: Tensor
    shift: KeyShift | None
    suffix: CausalAttention
    recorder: TraceRecorder | None

    @classmethod
    def of(cls, reading: StrategyContext, suffix_document_starts: IntArray) -> Self:
        """suffix_document_starts: as the plan has them."""
        plan, layout, device = reading.plan, reading.plan.layout, reading.device
        stored = torch.arange(reading.length)
        documents = slice(layout.prefix_length, layout.documents_end)
        if plan.method.is_order_invariant:
            blocks = build_blocks(layout, stored.device)
            stored[documents] = blocks.token_index[~blocks.is_padding]
        order = stored[documents] - layout.prefix_length
        shift = None
        if plan.moves_documents:
            moved = np.repeat(suffix_document_starts - plan.query_starts, layout.lengths)
            shift = KeyShift(reading.rotations(), torch.from_numpy(moved)[order].to(device))
        suffix = CausalAttention.over(reading, stored.to(device))
        return cls(layout, order.to(device), shift, suffix, reading.recorder)

    def prefill(self, given: LayerInput, prefix: KeysValues | None, room: int) -> tuple[Tensor, LayerCache]:
        """See Strategy."""
        outputs, length = [], self.layout.prefix_length
        if prefix is None:
            front, given = given.rows(0, length), given.rows(length)
            outputs.append(causal_tail(front.query, front.key, front.value, front.scoring))
            self._record(front, front.key, start=0)
            prefix = front.key, front.value
        prefix = prefix[0].to(given.key.dtype), prefix[1].to(given.value.dtype)

        first = 0
        for ids in self.layout.documents:
            own = given.rows(first, first + len(ids))
            keys, values = (torch.cat(pair, dim=1) for pair in zip(prefix, (own.key, own.value), strict=True))
            outputs.append(causal_tail(copied(own.query), keys, values, own.scoring))
            self._record(own, keys, start=length + first)
            first += len(ids)

        keys, values = given.key[:, self.order], given.value[:, self.order]
        if self.shift:
            keys = self.shift.move(given.layer, keys)
        cache = new_layer(keys, self.layout.num_tokens + room)
        cache.append(*prefix)
        cache.append(keys, values)
        outputs.append(self.suffix.extend(given.rows(first), cache))
        return torch.cat(outputs, dim=1), cache

    @property
    def continuing(self) -> CausalAttention:
        """See Strategy."""
        return self.suffix

    def adopt(self, layer: int, keys: Tensor, source: AttentionPlan) -> Tensor:
        """See Strategy."""
        if self.shift is None or source.moves_documents:
            return keys
        length = self.layout.prefix_length
        return torch.cat((keys[:, :length], self.shift.move(layer, keys[:, length:])), dim=1)

    def _record(self, own: LayerInput, keys: Tensor, start: int) -> None:
        """Tells the trace of the prefix, or of a document that begins at `start` and reads the prefix too."""
        if not self.recorder:
            return
        index = torch.arange(start, start + own.query.shape[1], device=keys.device)
        if start:
            index = torch.cat((torch.arange(self.layout.prefix_length, device=keys.device), index))
        self.recorder.record_asked(own.layer, start, own.query, keys, own.scoring, key_index=index)
