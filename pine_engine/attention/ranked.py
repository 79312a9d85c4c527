"""Every query places the documents by how important it finds them, and we rotate: PINE.

Source: specification 3.5.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from pine_engine.attention.arithmetic import (
    apply_weights,
    document_queries,
    rank_for_documents,
    rank_for_suffix,
    suffix_weights,
)
from pine_engine.attention.kv_cache import DocumentBlocks, LayerCache, heads_of, new_layer
from pine_engine.attention.placement import Placement, Slots
from pine_engine.attention.recorder import SuffixFound, TraceRecorder
from pine_engine.attention.strategy import KeysValues, LayerInput, Strategy, StrategyContext
from pine_engine.methods.table import ImportanceKind
from pine_engine.network.registration import AttentionParams
from pine_engine.network.rope import from_pairs

SUFFIX_SCORES = 4_000_000
"""Scores per chunk of suffix queries, so that a long suffix needs no more memory than this at once."""


@dataclass(frozen=True)
class RankedAttention(Strategy):
    """Documents rank the others, and every token of the suffix ranks all, in every head.

    padding: (P,), 0 for slots with tokens and -inf for padding; None without any. key_index: physical index
    of each key that the suffix reads: those of the slots, of the prefix, of the suffix with room. segments:
    (K, 1 + D + 1), one for the segment of each of them, documents in block order, else zero. kind,
    is_reversed: of the ranking, see Method.
    """

    placement: Placement
    padding: Tensor | None
    key_index: Tensor
    segments: Tensor
    kind: ImportanceKind
    is_reversed: bool
    alike: Hashable
    recorder: TraceRecorder | None

    @classmethod
    def of(cls, reading: StrategyContext) -> Self:
        """The strategy with all that it needs for one prompt."""
        plan, layout = reading.plan, reading.plan.layout
        placement = Placement.of(reading)
        blocks = placement.blocks
        index = torch.arange(reading.length, device=reading.device)
        key_index = (blocks.token_index, index[: layout.prefix_length], index[layout.documents_end :])
        segments = (
            blocks.document + 1,
            torch.zeros_like(key_index[1]),
            torch.full_like(key_index[2], layout.num_documents + 1),
        )
        lengths = tuple(rows.stop - rows.start for rows in blocks.rows)
        places = (layout.prefix_length, lengths, plan.suffix_start)
        return cls(
            placement=placement,
            padding=blocks.padding_bias(reading.compute_dtype),
            key_index=torch.cat(key_index),
            segments=one_hot(torch.cat(segments), layout.num_documents + 2).to(reading.compute_dtype),
            kind=plan.method.importance,
            is_reversed=plan.is_reversed,
            alike=("ranked", plan.method, places),
            recorder=reading.recorder,
        )

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
        count = layout.documents_end - layout.prefix_length
        documents, suffix = given.rows(0, count), given.rows(count)
        slots = self.placement.to_slots(documents)
        starts = self._rank_documents(layer, slots, given.scoring)
        outputs += self.placement.read_documents(documents, slots, prefix, starts)

        cache = new_layer(
            given.key,
            layout.num_tokens - count + room,
            dtype=self.placement.compute_dtype,
            blocks=self._keep(layer, slots),
        )
        cache.append(*prefix)
        outputs.append(self.extend(suffix, cache))
        return torch.cat(outputs, dim=1), cache

    def extend(
        self, given: LayerInput, cache: LayerCache, rows: Sequence["RankedAttention | None"] = ()
    ) -> Tensor:
        """See DecodeStrategy."""
        layout, blocks = self.placement.layout, self.placement.blocks
        rotation, dtype = self.placement.rotations[given.layer], cache.keys.dtype
        num_heads, count, _ = given.query.shape
        seen_before = cache.length
        first = seen_before + layout.documents_end - layout.prefix_length
        # Once for both: decoding takes as long as its small operations are many.
        both = torch.cat((given.query.to(dtype) * given.scoring.scale, given.key.to(dtype)))
        pairs = rotation.rope.to_pairs(both)
        positions = self.placement.positions[first : first + count]
        turned = from_pairs(pairs * rotation.table[positions])
        cache.append(turned[num_heads:], given.value.to(dtype))
        pairs, rotated = pairs[:num_heads], turned[:num_heads]
        own, outputs = rows or (self,), []
        chunk = max(1, SUFFIX_SCORES // (num_heads * len(blocks.document)))
        for start in range(0, count, chunk):
            stop = min(start + chunk, count)
            visible = seen_before + stop
            ranking = rank_for_suffix(
                from_pairs(rotation.rope.unscaled(pairs[:, start:stop])),
                cache.blocks.unrotated_keys,
                self.padding,
                blocks,
                layout.documents_end,
                kind=self.kind,
                reverse=self.is_reversed,
            )
            weights = suffix_weights(
                document_queries(pairs[:, start:stop], positions[start:stop], ranking.starts, rotation.table),
                rotated[:, start:stop],
                cache.blocks.keys,
                self.padding,
                cache.keys[:, :visible],
                given.scoring.softcap,
            )
            outputs.append(apply_weights(weights, cache.blocks.values, cache.values[:, :visible]))
            if any(row and row.recorder for row in own):
                shares = weights @ self.segments[: weights.shape[-1]]
            for number, row in enumerate(own):
                if row and row.recorder:
                    heads, blocks_of_row = heads_of(number, num_heads // len(own)), row.placement.blocks
                    found = SuffixFound(blocks_of_row, heads, ranking.importance, ranking.starts, shares)
                    row.recorder.record_suffix(given.layer, found)
                    row.recorder.record_weights(given.layer, first + start, weights, heads, row.key_index)
        return (outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=1)).to(given.query.dtype)

    def prefix(self, layer: int, cache: LayerCache, length: int) -> KeysValues:
        """See Strategy."""
        return self.placement.give_prefix(layer, cache, length)

    def _rank_documents(self, layer: int, slots: Slots, scoring: AttentionParams) -> Tensor:
        """Start of document b as seen from document a, int64 (D, H, D), or (D, 1, D) if all heads agree; both
        in block order."""
        blocks, rope = self.placement.blocks, self.placement.rotations[layer].rope
        query = from_pairs(rope.unscaled(slots.queries)) * scoring.scale
        ranked = rank_for_documents(
            [query[:, part].reshape(slots.keys.shape[0], -1, query.shape[-1]) for part in blocks.rows],
            from_pairs(slots.keys),
            blocks,
            self.placement.layout.documents_end,
            kind=self.kind,
            reverse=self.is_reversed,
        )
        if self.recorder:
            starts = ranked.starts.expand_as(ranked.importance)
            self.recorder.record_documents(layer, blocks, ranked.importance, starts)
        return ranked.starts

    def _keep(self, layer: int, slots: Slots) -> DocumentBlocks:
        """Keys and values of the documents for the suffix, which ranks: by document and offset."""
        blocks, table = self.placement.blocks, self.placement.rotations[layer].table
        return DocumentBlocks(
            keys=blocks.split(from_pairs(slots.keys * table[blocks.offset])),
            values=slots.values.to(self.placement.compute_dtype).contiguous(),
            unrotated_keys=from_pairs(slots.keys),
        )
