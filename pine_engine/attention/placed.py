"""Documents see others at places that the plan knows, and we rotate. Source: specification 3.6 to 3.8."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from pine_engine.attention.causal import CausalAttention
from pine_engine.attention.kv_cache import LayerCache, new_layer
from pine_engine.attention.placement import Placement
from pine_engine.attention.strategy import KeysValues, LayerInput, Strategy, StrategyContext
from pine_engine.prompts.layout import IntArray


@dataclass(frozen=True)
class PlacedAttention(Strategy):
    """Every document sees the others where the plan puts them, whatever stands in them.

    starts: int64 (D, 1, D), where document b starts as seen from document a, in block order.
    seen_at: int64 (documents' tokens,), position at which the suffix sees each of them, in input order.
    suffix: how whatever follows the documents reads, once it is rotated.
    """

    placement: Placement
    starts: Tensor
    seen_at: Tensor
    suffix: CausalAttention
    alike: Hashable

    @classmethod
    def of(
        cls, reading: StrategyContext, document_starts: IntArray, suffix_document_starts: IntArray
    ) -> Self:
        """document_starts, suffix_document_starts: as the plan has them."""
        placement, layout = Placement.of(reading), reading.plan.layout
        order = placement.blocks.order
        starts = torch.tensor(document_starts).to(reading.device)[order][:, order][:, None]
        moved = np.repeat(suffix_document_starts - layout.document_starts, layout.lengths)
        seen_at = torch.from_numpy(moved + np.arange(layout.prefix_length, layout.documents_end))
        suffix = CausalAttention.of(reading)
        places = (layout.prefix_length, layout.documents_end, reading.plan.suffix_start)
        alike = ("placed", reading.plan.method, places, suffix.alike)
        return cls(placement, starts, seen_at.to(reading.device), suffix, alike)

    @property
    def continuing(self) -> Self:
        """See Strategy."""
        return self

    def prefill(self, given: LayerInput, prefix: KeysValues | None, room: int) -> tuple[Tensor, LayerCache]:
        """See Strategy."""
        layer, layout, outputs = given.layer, self.placement.layout, []
        if prefix is None:
            front, given = given.rows(0, layout.prefix_length), given.rows(layout.prefix_length)
            output, prefix = self.placement.read_prefix(front)
            outputs.append(output)
        else:
            prefix = self.placement.take_prefix(layer, prefix)
        count = len(self.seen_at)
        documents, suffix = given.rows(0, count), given.rows(count)
        slots = self.placement.to_slots(documents)
        outputs += self.placement.read_documents(documents, slots, prefix, self.starts)

        cache = new_layer(given.key, layout.num_tokens + room)
        cache.append(*prefix)
        keys = self.placement.rotations[layer].rotate(documents.key, self.seen_at)
        cache.append(keys, documents.value)
        outputs.append(self.extend(suffix, cache))
        return torch.cat(outputs, dim=1), cache

    def extend(
        self, given: LayerInput, cache: LayerCache, rows: Sequence["PlacedAttention | None"] = ()
    ) -> Tensor:
        """See DecodeStrategy."""
        rotation = self.placement.rotations[given.layer]
        positions = self.placement.positions[cache.length : cache.length + given.query.shape[1]]
        query, key = (rotation.rotate(part, positions).to(part.dtype) for part in (given.query, given.key))
        turned = LayerInput(given.layer, query, key, given.value, given.scoring)
        return self.suffix.extend(turned, cache, [row.suffix if row else None for row in rows])

    def prefix(self, layer: int, cache: LayerCache, length: int) -> KeysValues:
        """See Strategy."""
        return self.placement.give_prefix(layer, cache, length)
