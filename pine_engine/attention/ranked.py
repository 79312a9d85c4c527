"""PINE: every query places the documents by their importance, with rotation by PINE.

Source: specification 3.5.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from pine_engine.attention import arithmetic
from pine_engine.attention.arithmetic import Ranking
from pine_engine.attention.kv_cache import DocumentBlocks, LayerCache, heads_of, new_layer
from pine_engine.attention.placed import Placement
from pine_engine.attention.recorder import StoredKeys
from pine_engine.attention.strategy import KeysValues, PromptState, Strategy
from pine_engine.network.layer_progress import add_flop
from pine_engine.network.registration import LayerInput
from pine_engine.network.rope import from_pairs

MAX_CHUNK_SCORES = 4_000_000  # scores per chunk of suffix queries, which limits the memory of a long suffix


class RankedAttention(Strategy):
    """Every head ranks the other documents for each document, and all documents for each suffix token."""

    def __init__(self, state: PromptState, device: torch.device) -> None:
        plan, layout, self.recorder = state.plan, state.plan.layout, state.recorder
        self.placement = Placement(state, device)
        blocks = self.placement.blocks
        self.padding = blocks.padding_bias(state.compute_dtype)
        # Keys that the suffix attends to: slots, prefix, then suffix with reserved tokens.
        index = torch.arange(state.num_tokens, device=device)
        key_index = (blocks.token_index, index[: layout.prefix_length], index[layout.documents_end :])
        self.stored = StoredKeys(plan, torch.cat(key_index))
        lengths = tuple(rows.stop - rows.start for rows in blocks.rows)
        self.batch_key = "ranked", plan.method, layout.prefix_length, lengths, plan.suffix_start

    def prefill(self, inputs: LayerInput, prefix: KeysValues | None) -> tuple[Tensor, LayerCache]:
        """See Strategy."""
        layout = self.placement.layout
        outputs, prefix, documents, suffix = self.placement.prefill_prefix(inputs, prefix)
        slots = self.placement.to_slots(documents)
        starts = self._rank_documents(slots)
        outputs += self.placement.prefill_documents(documents, slots, prefix, starts)

        blocks, dtype = self.placement.blocks, self.placement.compute_dtype
        table = self.placement.rotations[inputs.layer].table
        stored = DocumentBlocks(
            keys=blocks.split(from_pairs(slots.key * table[blocks.offset])),
            values=slots.value.to(dtype).contiguous(),
            unrotated_keys=from_pairs(slots.key),
        )
        capacity = len(self.placement.positions) - layout.documents_end + layout.prefix_length
        cache = new_layer(inputs.key, capacity, dtype=dtype, blocks=stored)
        cache.append(*prefix)
        outputs.append(self.extend(suffix, cache))
        return torch.cat(outputs, dim=1), cache

    def extend(
        self, inputs: LayerInput, cache: LayerCache, members: Sequence["RankedAttention | None"] = ()
    ) -> Tensor:
        """See DecodeStrategy."""
        plan, layout, blocks = self.stored.plan, self.placement.layout, self.placement.blocks
        rotation, dtype = self.placement.rotations[inputs.layer], cache.keys.dtype
        num_heads, count, _ = inputs.query.shape
        num_cached = cache.length
        first = num_cached + layout.documents_end - layout.prefix_length
        # Together, because the time of a decode step depends on the number of small operations.
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
            ranking = arithmetic.rank_for_suffix(
                from_pairs(rotation.rope.unscaled(pairs[:, start:stop])),
                cache.blocks.unrotated_keys,
                self.padding,
                blocks,
                layout.documents_end,
                kind=plan.method.importance,
                reverse=plan.is_reversed,
            )
            weights = arithmetic.suffix_weights(
                arithmetic.document_queries(
                    pairs[:, start:stop], positions[start:stop], ranking.starts, rotation.table
                ),
                rotated[:, start:stop],
                cache.blocks.keys,
                self.padding,
                cache.keys[:, :visible],
                inputs.scoring.softcap,
            )
            outputs.append(arithmetic.apply_weights(weights, cache.blocks.values, cache.values[:, :visible]))
            add_flop(12 * weights.numel() * pairs.shape[-1])  # d = 2 * pairs
            for index, member in enumerate(members):
                if member and member.recorder:
                    *ranked, own_weights = (heads_of(one, index, len(members)) for one in (*ranking, weights))
                    member.recorder.record_suffix(
                        inputs.layer, first + start, Ranking(*ranked), own_weights, member.stored
                    )
        return (outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=1)).to(inputs.query.dtype)

    def prefix(self, layer: int, cache: LayerCache, length: int) -> KeysValues:
        """See Strategy."""
        return self.placement.export_prefix(layer, cache, length)

    def _rank_documents(self, slots: LayerInput) -> Tensor:
        """Return the start of document b for document a in block order, as `Ranking.starts`."""
        blocks, rope = self.placement.blocks, self.placement.rotations[slots.layer].rope
        query = from_pairs(rope.unscaled(slots.query)) * slots.scoring.scale
        ranking = arithmetic.rank_for_documents(
            [query[:, part].reshape(slots.key.shape[0], -1, query.shape[-1]) for part in blocks.rows],
            from_pairs(slots.key),
            blocks,
            self.placement.layout.documents_end,
            kind=self.stored.plan.method.importance,
            reverse=self.stored.plan.is_reversed,
        )
        if self.recorder:
            self.recorder.record_documents(slots.layer, blocks, ranking)
        return ranking.starts
