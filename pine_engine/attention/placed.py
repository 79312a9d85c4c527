"""Documents at positions that the plan fixes, with rotation by PINE. Source: specification 3.6 to 3.8."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from torch import Tensor

from pine_engine.attention.causal import CausalAttention
from pine_engine.attention.kv_cache import LayerCache, new_layer
from pine_engine.attention.placement import Placement
from pine_engine.attention.strategy import KeysValues, Strategy, StrategyContext
from pine_engine.network.registration import LayerInput
from pine_engine.prompts.layout import IntArray


@dataclass(frozen=True)
class PlacedAttention(Strategy):
    """Each document attends to others at the positions of the plan, independent of their content.

    Attributes:
        starts: int64 (D, 1, D), start of document b as seen from document a, in block order.
        seen_at: int64 (document tokens,), position of each token as seen from the suffix, in input order.
        suffix: Strategy for the tokens after the documents, once they are rotated.
    """

    placement: Placement
    starts: Tensor
    seen_at: Tensor
    suffix: CausalAttention
    batch_key: Hashable

    @classmethod
    def of(
        cls, context: StrategyContext, document_starts: IntArray, suffix_document_starts: IntArray
    ) -> Self:
        """Create the strategy of a prompt; the starts are those of the plan."""
        placement, layout = Placement.of(context), context.plan.layout
        order = placement.blocks.order
        starts = torch.tensor(document_starts).to(context.device)[order][:, order][:, None]
        moved = np.repeat(suffix_document_starts - layout.document_starts, layout.lengths)
        seen_at = torch.from_numpy(moved + np.arange(layout.prefix_length, layout.documents_end))
        suffix = CausalAttention.of(context)
        positions = (layout.prefix_length, layout.documents_end, context.plan.suffix_start)
        batch_key = ("placed", context.plan.method, positions, suffix.batch_key)
        return cls(placement, starts, seen_at.to(context.device), suffix, batch_key)

    @property
    def decode_strategy(self) -> Self:
        """See Strategy."""
        return self

    def prefill(
        self, inputs: LayerInput, prefix: KeysValues | None, reserved_tokens: int
    ) -> tuple[Tensor, LayerCache]:
        """See Strategy."""
        outputs, prefix, documents, suffix = self.placement.prefill_prefix(inputs, prefix)
        slots = self.placement.to_slots(documents)
        outputs += self.placement.prefill_documents(documents, slots, prefix, self.starts)

        cache = new_layer(inputs.key, self.placement.layout.num_tokens + reserved_tokens)
        cache.append(*prefix)
        keys = self.placement.rotations[inputs.layer].rotate(documents.key, self.seen_at)
        cache.append(keys, documents.value)
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
