"""Documents that attend to each other, with rotation by PINE: prefill, and positions that the plan fixes.

`Placement` prefills prefix and documents; the starts of the documents come from the plan, or from the
importance for each query (`ranked.py`). Source: specification 3.5 to 3.8.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from pine_engine.attention.arithmetic import causal_tail
from pine_engine.attention.blocks import build_blocks
from pine_engine.attention.causal import CausalAttention
from pine_engine.attention.kv_cache import LayerCache, new_layer
from pine_engine.attention.ops import Documents, KernelOps, Ops
from pine_engine.attention.strategy import KeysValues, PromptState, Strategy, placing_kernels
from pine_engine.network.registration import LayerInput
from pine_engine.network.rope import as_pairs, from_pairs
from pine_engine.prompts.layout import IntArray


class Placement:
    """Prefill of prefix and documents from unrotated queries and keys."""

    def __init__(self, state: PromptState, device: torch.device) -> None:
        plan, self.layout, self.recorder = state.plan, state.plan.layout, state.recorder
        self.blocks = build_blocks(self.layout, device)
        self.rotations = state.rotations(device)
        self.positions = state.positions.to(device)  # of every token as a query, (num_tokens,)
        self.compute_dtype = state.compute_dtype
        order = self.blocks.order
        documents = Documents(
            plan,
            self.blocks,
            slot_positions=self.positions[self.blocks.token_index],
            visible=torch.from_numpy(plan.visible).to(device)[order][:, order],
            recorder=state.recorder,
        )
        kernels = placing_kernels(state, device)
        dtype = self.compute_dtype
        self.ops = KernelOps(documents, dtype, kernels) if kernels else Ops(documents, dtype)

    def prefill_prefix(
        self, inputs: LayerInput, prefix: KeysValues | None
    ) -> tuple[list[Tensor], KeysValues, LayerInput, LayerInput]:
        """Compute the prefix, or convert a prefilled one, and split the remaining input.

        Returns:
            Attention output (H, prefix, d) of the prefix, none if it was prefilled.
            Keys (G, prefix, d) of the prefix, rotated and in pair layout, and values.
            Input of the documents.
            Input of the suffix.
        """
        length, count = self.layout.prefix_length, self.layout.documents_end - self.layout.prefix_length
        rotation, outputs = self.rotations[inputs.layer], []
        if prefix is None:
            front, inputs = inputs.tokens(0, length), inputs.tokens(length)
            query = rotation.rotate(front.query, self.positions[:length]).to(front.query.dtype)
            keys = rotation.rotate(front.key, self.positions[:length])  # (G, prefix, d)
            rounded, kernels = keys.to(front.key.dtype), self.ops.kernels
            outputs.append(causal_tail(query, rounded, front.value, front.scoring, kernels=kernels))
            if self.recorder:
                index = torch.arange(length, device=keys.device)
                self.recorder.record_tokens(replace(front, query=query), 0, keys, index)
            prefix = keys, front.value.to(self.compute_dtype)
        else:
            keys, values = (part.to(self.compute_dtype) for part in prefix)
            prefix = from_pairs(rotation.rope.to_pairs(keys)), values
        return outputs, prefix, inputs.tokens(0, count), inputs.tokens(count)

    def export_prefix(self, layer: int, cache: LayerCache, length: int) -> KeysValues:
        """Return the prefix of a cache, which has pair layout, as `Strategy.prefix` does."""
        keys, values = (part[:, :length].to(self.compute_dtype) for part in (cache.keys, cache.values))
        return self.rotations[layer].rope.to_vectors(as_pairs(keys)), values

    def to_slots(self, documents: LayerInput) -> LayerInput:
        """Return the document tokens in block order, the order of all sums over them.

        Queries (H, P, d/2) and keys (G, P, d/2) are complex pairs, unrotated; values are (G, P, d).
        """
        rope = self.rotations[documents.layer].rope
        index = self.blocks.token_index - self.layout.prefix_length
        queries, keys = (
            rope.to_pairs(part[:, index].to(self.compute_dtype)) for part in (documents.query, documents.key)
        )
        return replace(documents, query=queries, key=keys, value=documents.value[:, index])


class PlacedAttention(Strategy):
    """Each document attends to others at the positions of the plan, independent of their content."""

    def __init__(
        self, state: PromptState, device: torch.device, document_starts: IntArray, suffix_starts: IntArray
    ) -> None:
        self.placement, layout = Placement(state, device), state.plan.layout
        order = self.placement.blocks.order
        # int64 (D, 1, D), start of document b for document a, in block order.
        self.starts = torch.tensor(document_starts).to(device)[order][:, order][:, None]
        # Positions of the document tokens for the suffix. It stores them in this order, so that its sums are
        # independent of the input order where the positions are.
        moved = np.repeat(suffix_starts - layout.document_starts, layout.lengths)
        suffix_positions = moved + np.arange(layout.prefix_length, layout.documents_end)
        by_position = torch.from_numpy(suffix_positions.argsort(kind="stable"))
        self.suffix_positions = torch.from_numpy(suffix_positions)[by_position].to(device)
        self.by_position = by_position.to(device)
        stored = torch.arange(state.num_tokens)
        stored[layout.prefix_length : layout.documents_end] = by_position + layout.prefix_length
        self.suffix = CausalAttention(state, device, stored)  # of rotated queries and keys
        positions = (layout.prefix_length, layout.documents_end, state.plan.suffix_start)
        self.batch_key = "placed", state.plan.method, positions, self.suffix.batch_key

    def prefill(self, inputs: LayerInput, prefix: KeysValues | None) -> tuple[Tensor, LayerCache]:
        """See Strategy."""
        outputs, prefix, documents, suffix = self.placement.prefill_prefix(inputs, prefix)
        slots = self.placement.to_slots(documents)
        rotation = self.placement.rotations[inputs.layer]
        outputs += self.placement.ops.attend_documents(documents, slots, prefix, self.starts, rotation)

        cache = new_layer(inputs.key, len(self.placement.positions))
        cache.append(*prefix)
        keys = rotation.rotate(documents.key[:, self.by_position], self.suffix_positions)  # (G, n, d)
        cache.append(keys, documents.value[:, self.by_position])
        outputs.append(self.extend(suffix, cache))
        return torch.cat(outputs, dim=1), cache  # (H, num_tokens, d)

    def extend(
        self, inputs: LayerInput, cache: LayerCache, members: Sequence["PlacedAttention | None"] = ()
    ) -> Tensor:
        """See DecodeStrategy."""
        rotation = self.placement.rotations[inputs.layer]
        positions = self.placement.positions[cache.length : cache.length + inputs.query.shape[1]]
        query, key = (rotation.rotate(part, positions).to(part.dtype) for part in (inputs.query, inputs.key))
        suffixes = [member.suffix if member else None for member in members]
        return self.suffix.extend(replace(inputs, query=query, key=key), cache, suffixes)

    def prefix(self, layer: int, cache: LayerCache, length: int) -> KeysValues:
        """See Strategy."""
        return self.placement.export_prefix(layer, cache, length)
