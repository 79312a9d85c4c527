"""Documents at positions that the plan fixes, with rotation by PINE. Source: specification 3.6 to 3.8."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from pine_engine.attention.causal import CausalAttention
from pine_engine.attention.kv_cache import LayerCache, new_layer
from pine_engine.attention.placement import Placement
from pine_engine.attention.strategy import KeysValues, PromptState, Strategy
from pine_engine.network.registration import LayerInput
from pine_engine.prompts.layout import IntArray


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
        outputs += self.placement.prefill_documents(documents, slots, prefix, self.starts)

        cache = new_layer(inputs.key, len(self.placement.positions))
        cache.append(*prefix)
        keys = documents.key[:, self.by_position]
        keys = self.placement.rotations[inputs.layer].rotate(keys, self.suffix_positions)
        cache.append(keys, documents.value[:, self.by_position])
        outputs.append(self.extend(suffix, cache))
        return torch.cat(outputs, dim=1), cache

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
