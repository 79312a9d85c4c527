"""Documents that do not attend to each other, with rotation by the model: NIA, PCW, SP and reuse of caches.

Source: specification 3.2, 3.3.
"""

import numpy as np
import torch
from torch import Tensor

from pine_engine.attention.arithmetic import causal_tail, copied
from pine_engine.attention.blocks import build_blocks
from pine_engine.attention.causal import CausalAttention
from pine_engine.attention.kv_cache import LayerCache, new_layer
from pine_engine.attention.strategy import KeysValues, PromptState, Strategy
from pine_engine.methods.plan import AttentionPlan
from pine_engine.network.registration import LayerInput
from pine_engine.prompts.layout import IntArray


class IsolatedAttention(Strategy):
    """Each document attends to itself and the prefix, or its first token; the suffix to all tokens."""

    def __init__(self, state: PromptState, device: torch.device, suffix_document_starts: IntArray) -> None:
        plan, self.layout, self.recorder = state.plan, state.plan.layout, state.recorder
        stored = torch.arange(state.num_tokens)
        documents = slice(self.layout.prefix_length, self.layout.documents_end)
        if plan.method.encodes_set:
            blocks = build_blocks(self.layout, stored.device)
            stored[documents] = blocks.token_index[~blocks.is_padding]
        order = stored[documents] - self.layout.prefix_length
        self.num_visible = plan.num_visible_prefix_tokens  # for documents
        self.order = order.to(device)  # document token in each place of the cache, (document tokens,)
        moved = np.repeat(suffix_document_starts - plan.query_starts, self.layout.lengths)
        self.shift = torch.from_numpy(moved)[order].to(device)
        # Rotation of document keys for the suffix; None if it has the documents at the same positions.
        self.rotations = state.rotations(device) if plan.moves_documents else None
        self.suffix = CausalAttention(state, device, stored)

    def prefill(self, inputs: LayerInput, prefix: KeysValues | None) -> tuple[Tensor, LayerCache]:
        """See Strategy."""
        outputs, length = [], self.layout.prefix_length
        if prefix is None:
            front, inputs = inputs.tokens(0, length), inputs.tokens(length)
            outputs.append(
                causal_tail(front.query, front.key, front.value, front.scoring, kernels=self.suffix.kernels)
            )
            self._record(front, front.key, start=0)
            prefix = front.key, front.value
        prefix = prefix[0].to(inputs.key.dtype), prefix[1].to(inputs.value.dtype)

        first = 0
        for ids in self.layout.documents:
            document = inputs.tokens(first, first + len(ids))
            pairs = zip(prefix, (document.key, document.value), strict=True)
            keys, values = (torch.cat((seen[:, : self.num_visible], own), dim=1) for seen, own in pairs)
            query = copied(document.query)
            outputs.append(causal_tail(query, keys, values, document.scoring, kernels=self.suffix.kernels))
            self._record(document, keys, start=length + first)
            first += len(ids)

        keys, values = self._shift(inputs.layer, inputs.key[:, self.order]), inputs.value[:, self.order]
        cache = new_layer(keys, len(self.suffix.stored.index))
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
        if self.rotations is None or source.moves_documents:
            return keys
        length = self.layout.prefix_length
        return torch.cat((keys[:, :length], self._shift(layer, keys[:, length:])), dim=1)

    def _shift(self, layer: int, keys: Tensor) -> Tensor:
        """Rotate keys (G, document tokens, head_dim) from their positions in the document to the suffix's."""
        if self.rotations is None:
            return keys
        rotation = self.rotations[layer]
        pairs = rotation.rope.to_pairs(keys.to(rotation.table.real.dtype)) * rotation.table[self.shift]
        return rotation.rope.to_vectors(pairs).to(keys.dtype)

    def _record(self, inputs: LayerInput, keys: Tensor, start: int) -> None:
        """Record the prefix, or a document that begins at `start` and also attends to prefix tokens."""
        if not self.recorder:
            return
        index = torch.arange(start, start + inputs.query.shape[1], device=keys.device)
        if start:
            index = torch.cat((torch.arange(self.num_visible, device=keys.device), index))
        self.recorder.record_tokens(inputs, start, keys, index)
