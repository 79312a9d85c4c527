"""PINE: every query places the documents by their importance, with rotation by PINE.

Source: specification 3.5.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from pine_engine.attention import arithmetic
from pine_engine.attention.arithmetic import Ranking
from pine_engine.attention.kv_cache import DocumentBlocks, LayerCache, heads_of, new_layer
from pine_engine.attention.ops import SuffixQueries
from pine_engine.attention.placed import Placement
from pine_engine.attention.recorder import StoredKeys
from pine_engine.attention.strategy import KeysValues, PromptState, Strategy
from pine_engine.network.registration import LayerInput
from pine_engine.network.rope import from_pairs


class RankedAttention(Strategy):
    """Every head ranks the other documents for each document, and all documents for each suffix token."""

    def __init__(self, state: PromptState, device: torch.device) -> None:
        plan, layout, self.recorder = state.plan, state.plan.layout, state.recorder
        self.placement = Placement(state, device)
        self.ops = self.placement.ops
        blocks = self.placement.blocks
        # Keys that the suffix attends to: slots, prefix, then suffix with reserved tokens.
        index = torch.arange(state.num_tokens, device=device)
        key_index = (blocks.token_index, index[: layout.prefix_length], index[layout.documents_end :])
        self.stored = StoredKeys(plan, torch.cat(key_index))
        lengths = tuple(rows.stop - rows.start for rows in blocks.rows)
        self.batch_key = "ranked", plan.method, layout.prefix_length, lengths, plan.suffix_start

    def prefill(self, inputs: LayerInput, prefix: KeysValues | None) -> tuple[Tensor, LayerCache]:
        """See Strategy."""
        layout, rotation = self.placement.layout, self.placement.rotations[inputs.layer]
        outputs, prefix, documents, suffix = self.placement.prefill_prefix(inputs, prefix)
        slots = self.placement.to_slots(documents)  # queries (H, P, d/2), keys (G, P, d/2)
        starts = self._rank_documents(slots)  # (D, H, D)
        outputs += self.ops.attend_documents(documents, slots, prefix, starts, rotation)

        dtype = self.placement.compute_dtype
        stored = DocumentBlocks(
            keys=self.ops.store_keys(from_pairs(slots.key * rotation.table[self.placement.blocks.offset])),
            values=slots.value.to(dtype).contiguous(),  # (G, P, d)
            unrotated_keys=from_pairs(slots.key),  # (G, P, d)
        )
        capacity = len(self.placement.positions) - layout.documents_end + layout.prefix_length
        cache = new_layer(inputs.key, capacity, dtype=dtype, blocks=stored)
        cache.append(*prefix)
        outputs.append(self.extend(suffix, cache))
        return torch.cat(outputs, dim=1), cache  # (H, num_tokens, d)

    def extend(
        self, inputs: LayerInput, cache: LayerCache, members: Sequence["RankedAttention | None"] = ()
    ) -> Tensor:
        """See DecodeStrategy."""
        rotation = self.placement.rotations[inputs.layer]
        recording = [one for one in members or (self,) if one and one.recorder]
        outputs = []
        for queries in self.ops.split_suffix(self._append(inputs, cache)):
            ranking = self._rank_suffix(queries, cache, inputs, is_recorded=bool(recording))  # (H, Q, D)
            output, weights = self.ops.attend_suffix(
                queries, ranking.starts, cache, rotation, inputs.scoring, needs_weights=bool(recording)
            )
            outputs.append(output)  # (H, Q, d)
            if weights is not None and recording:
                self._record(queries, ranking, weights, inputs, members or (self,))
        return (outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=1)).to(inputs.query.dtype)

    def _append(self, inputs: LayerInput, cache: LayerCache) -> SuffixQueries:
        """Append the keys and values of suffix tokens to the cache; return their queries."""
        rotation, dtype = self.placement.rotations[inputs.layer], cache.keys.dtype
        num_heads, count, _ = inputs.query.shape
        first = self._first(cache.length)
        positions = self.placement.positions[first : first + count]  # (Q,)
        # Together, because the time of a decode step depends on the number of small operations.
        vectors = torch.cat((inputs.query.to(dtype) * inputs.scoring.scale, inputs.key.to(dtype)))
        pairs = rotation.rope.to_pairs(vectors)  # (H + G, Q, d/2)
        rotated = from_pairs(pairs * rotation.table[positions])  # (H + G, Q, d)
        cache.append(rotated[num_heads:], inputs.value.to(dtype))
        return SuffixQueries(pairs[:num_heads], rotated[:num_heads], positions, cache.length)

    def _first(self, num_cached: int) -> int:
        """Return the physical index of the token after `num_cached` tokens of prefix and suffix."""
        return num_cached + self.placement.layout.documents_end - self.placement.layout.prefix_length

    def _record(
        self,
        queries: SuffixQueries,
        ranking: Ranking,
        weights: Tensor,
        inputs: LayerInput,
        members: Sequence["RankedAttention | None"],
    ) -> None:
        """Record ranking (H, Q, D) and weights (H, Q, K) of the heads of each member in its own trace."""
        first = self._first(queries.num_keys - len(queries.positions))
        for index, member in enumerate(members):
            if member and member.recorder:
                importance, starts, own = (
                    heads_of(part, index, len(members)) for part in (*ranking, weights)
                )
                member.recorder.record_suffix(
                    inputs.layer, first, Ranking(importance, starts), own, member.stored
                )

    def _rank_suffix(
        self, queries: SuffixQueries, cache: LayerCache, inputs: LayerInput, *, is_recorded: bool
    ) -> Ranking:
        """Rank the documents for suffix queries.

        Positions have no effect in a layer without RoPE: it ranks for a trace only; otherwise starts are 0.
        """
        rope, lengths = self.placement.rotations[inputs.layer].rope, self.placement.blocks.lengths
        if rope.is_identity and not is_recorded:
            shape = *queries.pairs.shape[:2], len(lengths)
            return Ranking(*[torch.zeros(shape, dtype=torch.int32, device=lengths.device)] * 2)
        query = from_pairs(rope.unscaled(queries.pairs))  # (H, Q, d)
        return self.ops.rank_suffix(query, cache.blocks.unrotated_keys, inputs.scoring)

    def prefix(self, layer: int, cache: LayerCache, length: int) -> KeysValues:
        """See Strategy."""
        return self.placement.export_prefix(layer, cache, length)

    def _rank_documents(self, slots: LayerInput) -> Tensor:
        """Return the start of document b for document a in block order, as `Ranking.starts`."""
        plan, blocks = self.stored.plan, self.placement.blocks
        rotation = self.placement.rotations[slots.layer]
        if rotation.rope.is_identity and not self.recorder:
            count = len(blocks.lengths)
            return blocks.lengths.new_zeros(count, 1, count)
        dtype = self.ops.ranking_dtype(slots, rotation)
        query = from_pairs(rotation.rope.unscaled(slots.query)).to(dtype)  # (H, P, d)
        keys = from_pairs(slots.key).to(dtype)  # (G, P, d)
        importance = arithmetic.known_importance(keys, blocks, slots.scoring, plan.method.importance)
        if importance is None:
            importance = self.ops.importance(query, keys, slots.scoring)  # (D, H, D)
        ranking = arithmetic.rank_for_documents(
            importance, len(query), blocks, self.placement.layout.documents_end, reverse=plan.is_reversed
        )
        if self.recorder:
            self.recorder.record_documents(slots.layer, blocks, ranking)
        return ranking.starts
