"""PINE: every query places the documents by their importance, with rotation by PINE.

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
from pine_engine.attention.recorder import SuffixRanking, TraceRecorder
from pine_engine.attention.strategy import KeysValues, Strategy, StrategyContext
from pine_engine.methods.table import ImportanceKind
from pine_engine.network.registration import AttentionParams, LayerInput
from pine_engine.network.rope import from_pairs

MAX_CHUNK_SCORES = 4_000_000
"""Scores per chunk of suffix queries, which limits the memory of a long suffix."""


@dataclass(frozen=True)
class RankedAttention(Strategy):
    """Every head ranks the other documents for each document, and all documents for each suffix token.

    Attributes:
        padding: (P,), 0 for tokens and -inf for padding; None without padding.
        key_index: Physical index of each key that the suffix attends to: slots, prefix, then suffix with
            reserved tokens.
        segments: One-hot segment (K, 1 + D + 1) of each of these keys, documents in block order.
        kind: Reduction of attention to importance.
        is_reversed: True if more important documents are farther.
    """

    placement: Placement
    padding: Tensor | None
    key_index: Tensor
    segments: Tensor
    kind: ImportanceKind
    is_reversed: bool
    batch_key: Hashable
    recorder: TraceRecorder | None

    @classmethod
    def of(cls, context: StrategyContext) -> Self:
        """Create the strategy of a prompt."""
        plan, layout = context.plan, context.plan.layout
        placement = Placement.of(context)
        blocks = placement.blocks
        index = torch.arange(context.length, device=context.device)
        key_index = (blocks.token_index, index[: layout.prefix_length], index[layout.documents_end :])
        segments = (
            blocks.document + 1,
            torch.zeros_like(key_index[1]),
            torch.full_like(key_index[2], layout.num_documents + 1),
        )
        lengths = tuple(rows.stop - rows.start for rows in blocks.rows)
        positions = (layout.prefix_length, lengths, plan.suffix_start)
        return cls(
            placement=placement,
            padding=blocks.padding_bias(context.compute_dtype),
            key_index=torch.cat(key_index),
            segments=one_hot(torch.cat(segments), layout.num_documents + 2).to(context.compute_dtype),
            kind=plan.method.importance,
            is_reversed=plan.is_reversed,
            batch_key=("ranked", plan.method, positions),
            recorder=context.recorder,
        )

    @property
    def decode_strategy(self) -> Self:
        """See Strategy."""
        return self

    def prefill(
        self, inputs: LayerInput, prefix: KeysValues | None, reserved_tokens: int
    ) -> tuple[Tensor, LayerCache]:
        """See Strategy."""
        layer, layout = inputs.layer, self.placement.layout
        outputs, prefix, documents, suffix = self.placement.prefill_prefix(inputs, prefix)
        slots = self.placement.to_slots(documents)
        starts = self._rank_documents(layer, slots, inputs.scoring)
        outputs += self.placement.prefill_documents(documents, slots, prefix, starts)

        cache = new_layer(
            inputs.key,
            layout.prefix_length + layout.suffix_length + reserved_tokens,
            dtype=self.placement.compute_dtype,
            blocks=self._store(layer, slots),
        )
        cache.append(*prefix)
        outputs.append(self.extend(suffix, cache))
        return torch.cat(outputs, dim=1), cache

    def extend(
        self, inputs: LayerInput, cache: LayerCache, members: Sequence["RankedAttention | None"] = ()
    ) -> Tensor:
        """See DecodeStrategy."""
        layout, blocks = self.placement.layout, self.placement.blocks
        rotation, dtype = self.placement.rotations[inputs.layer], cache.keys.dtype
        num_heads, count, _ = inputs.query.shape
        num_cached = cache.length
        first = num_cached + layout.documents_end - layout.prefix_length
        # SequenceGroup, because the time of a decode step depends on the number of small operations.
        vectors = torch.cat((inputs.query.to(dtype) * inputs.scoring.scale, inputs.key.to(dtype)))
        pairs = rotation.rope.to_pairs(vectors)
        positions = self.placement.positions[first : first + count]
        rotated = from_pairs(pairs * rotation.table[positions])
        cache.append(rotated[num_heads:], inputs.value.to(dtype))
        pairs, rotated = pairs[:num_heads], rotated[:num_heads]
        members, outputs = members or (self,), []
        chunk = max(1, MAX_CHUNK_SCORES // (num_heads * len(blocks.document)))
        for start in range(0, count, chunk):
            stop = min(start + chunk, count)
            visible = num_cached + stop
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
                inputs.scoring.softcap,
            )
            outputs.append(apply_weights(weights, cache.blocks.values, cache.values[:, :visible]))
            if any(member and member.recorder for member in members):
                shares = weights @ self.segments[: weights.shape[-1]]
            for index, member in enumerate(members):
                if member and member.recorder:
                    heads = heads_of(index, num_heads // len(members))
                    found = SuffixRanking(member.placement.blocks, heads, ranking, shares)
                    member.recorder.record_suffix(inputs.layer, found)
                    member.recorder.record_weights(
                        inputs.layer, first + start, weights, heads, member.key_index
                    )
        return (outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=1)).to(inputs.query.dtype)

    def prefix(self, layer: int, cache: LayerCache, length: int) -> KeysValues:
        """See Strategy."""
        return self.placement.export_prefix(layer, cache, length)

    def _rank_documents(self, layer: int, slots: Slots, scoring: AttentionParams) -> Tensor:
        """Return the start of document b as seen from document a, in block order, as `Ranking.starts`."""
        blocks, rope = self.placement.blocks, self.placement.rotations[layer].rope
        query = from_pairs(rope.unscaled(slots.queries)) * scoring.scale
        ranking = rank_for_documents(
            [query[:, part].reshape(slots.keys.shape[0], -1, query.shape[-1]) for part in blocks.rows],
            from_pairs(slots.keys),
            blocks,
            self.placement.layout.documents_end,
            kind=self.kind,
            reverse=self.is_reversed,
        )
        if self.recorder:
            self.recorder.record_documents(layer, blocks, ranking)
        return ranking.starts

    def _store(self, layer: int, slots: Slots) -> DocumentBlocks:
        """Return keys and values of the documents for the suffix."""
        blocks, table = self.placement.blocks, self.placement.rotations[layer].table
        return DocumentBlocks(
            keys=blocks.split(from_pairs(slots.keys * table[blocks.offset])),
            values=slots.values.to(self.placement.compute_dtype).contiguous(),
            unrotated_keys=from_pairs(slots.keys),
        )
