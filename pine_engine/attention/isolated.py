"""Documents that do not attend to each other, with rotation by the model: NIA, PCW and SP.

Source: specification 3.2, 3.3.
"""

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
from pine_engine.attention.strategy import KeysValues, Rotation, Strategy, StrategyContext
from pine_engine.methods.plan import AttentionPlan
from pine_engine.network.registration import LayerInput
from pine_engine.prompts.layout import IntArray, TokenLayout


@dataclass(frozen=True)
class KeyShift:
    """Rotation of document keys to the positions that the suffix sees; by: int64 (document tokens,)."""

    rotations: tuple[Rotation, ...]
    by: Tensor

    def move(self, layer: int, keys: Tensor) -> Tensor:
        """Rotate keys (G, document tokens, head_dim), which the model has rotated already."""
        rotation = self.rotations[layer]
        pairs = rotation.rope.to_pairs(keys.to(rotation.table.real.dtype)) * rotation.table[self.by]
        return rotation.rope.to_vectors(pairs).to(keys.dtype)


@dataclass(frozen=True)
class IsolatedAttention(Strategy):
    """Each document attends to the prefix and itself; the suffix attends to all tokens.

    Attributes:
        order: int64 (document tokens,), document token in each place of the cache, counted from the first
            one: block order for order-invariant methods.
        shift: Rotation of document keys for the suffix; None if it sees them at the same positions.
        suffix: Strategy for the tokens after the documents.
    """

    layout: TokenLayout
    order: Tensor
    shift: KeyShift | None
    suffix: CausalAttention
    recorder: TraceRecorder | None

    @classmethod
    def of(cls, context: StrategyContext, suffix_document_starts: IntArray) -> Self:
        """Create the strategy of a prompt; `suffix_document_starts` is that of the plan."""
        plan, layout, device = context.plan, context.plan.layout, context.device
        stored = torch.arange(context.length)
        documents = slice(layout.prefix_length, layout.documents_end)
        if plan.method.is_order_invariant:
            blocks = build_blocks(layout, stored.device)
            stored[documents] = blocks.token_index[~blocks.is_padding]
        order = stored[documents] - layout.prefix_length
        shift = None
        if plan.moves_documents:
            moved = np.repeat(suffix_document_starts - plan.query_starts, layout.lengths)
            shift = KeyShift(context.rotations(), torch.from_numpy(moved)[order].to(device))
        suffix = CausalAttention.over(context, stored.to(device))
        return cls(layout, order.to(device), shift, suffix, context.recorder)

    def prefill(
        self, inputs: LayerInput, prefix: KeysValues | None, reserved_tokens: int
    ) -> tuple[Tensor, LayerCache]:
        """See Strategy."""
        outputs, length = [], self.layout.prefix_length
        if prefix is None:
            front, inputs = inputs.tokens(0, length), inputs.tokens(length)
            outputs.append(causal_tail(front.query, front.key, front.value, front.scoring))
            self._record(front, front.key, start=0)
            prefix = front.key, front.value
        prefix = prefix[0].to(inputs.key.dtype), prefix[1].to(inputs.value.dtype)

        first = 0
        for ids in self.layout.documents:
            document = inputs.tokens(first, first + len(ids))
            pairs = zip(prefix, (document.key, document.value), strict=True)
            keys, values = (torch.cat(pair, dim=1) for pair in pairs)
            outputs.append(causal_tail(copied(document.query), keys, values, document.scoring))
            self._record(document, keys, start=length + first)
            first += len(ids)

        keys, values = inputs.key[:, self.order], inputs.value[:, self.order]
        if self.shift:
            keys = self.shift.move(inputs.layer, keys)
        cache = new_layer(keys, self.layout.num_tokens + reserved_tokens)
        cache.append(*prefix)
        cache.append(keys, values)
        outputs.append(self.suffix.extend(inputs.tokens(first), cache))
        return torch.cat(outputs, dim=1), cache

    @property
    def decode_strategy(self) -> CausalAttention:
        """See Strategy."""
        return self.suffix

    def convert_keys(self, layer: int, keys: Tensor, source: AttentionPlan) -> Tensor:
        """See Strategy."""
        if self.shift is None or source.moves_documents:
            return keys
        length = self.layout.prefix_length
        return torch.cat((keys[:, :length], self.shift.move(layer, keys[:, length:])), dim=1)

    def _record(self, inputs: LayerInput, keys: Tensor, start: int) -> None:
        """Record the prefix, or a document that begins at `start` and also attends to the prefix."""
        if not self.recorder:
            return
        index = torch.arange(start, start + inputs.query.shape[1], device=keys.device)
        if start:
            index = torch.cat((torch.arange(self.layout.prefix_length, device=keys.device), index))
        self.recorder.record_tokens(inputs, start, keys, index)
