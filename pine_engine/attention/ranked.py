"""PINE: every query places the documents by their importance, with rotation by PINE.

Source: specification 3.5.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast

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


class SuffixQueries(NamedTuple):
    """Scaled queries of suffix tokens in one layer: unrotated complex pairs, and rotated in pair layout."""

    pairs: Tensor  # (H, Q, head_dim / 2)
    rotated: Tensor  # (H, Q, head_dim)
    positions: Tensor  # (Q,)


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
        rotated = from_pairs(slots.key * self.placement.rotations[inputs.layer].table[blocks.offset])
        stored = DocumentBlocks(
            keys=[rotated.contiguous()] if self.placement.kernels else blocks.split(rotated),
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
        layout, blocks = self.placement.layout, self.placement.blocks
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
        queries = SuffixQueries(pairs[:num_heads], rotated[:num_heads], positions)
        kernels, outputs = self.placement.kernels, []
        if kernels:
            outputs.append(self._attend_on_gpu(queries, cache, inputs))
        members = members or (self,)
        recording = [(index, one) for index, one in enumerate(members) if one and one.recorder]
        chunks = self._weigh(queries, cache, inputs, is_recorded=bool(recording))
        for start, ranking, weights in chunks if recording or not kernels else ():
            add_flop(12 * weights.numel() * queries.pairs.shape[-1])  # d = 2 * pairs
            if not kernels:
                values = cache.values[:, : weights.shape[-1] - len(blocks.document)]
                outputs.append(arithmetic.apply_weights(weights, cache.blocks.values, values))
            for index, member in recording:
                *ranked, own_weights = (heads_of(one, index, len(members)) for one in (*ranking, weights))
                if member.recorder:
                    member.recorder.record_suffix(
                        inputs.layer, first + start, Ranking(*ranked), own_weights, member.stored
                    )
        return (outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=1)).to(inputs.query.dtype)

    def _weigh(
        self, queries: SuffixQueries, cache: LayerCache, inputs: LayerInput, *, is_recorded: bool
    ) -> Iterator[tuple[int, Ranking, Tensor]]:
        """Yield the first query, the ranking and the softmax weights of each chunk of suffix queries."""
        blocks, table = self.placement.blocks, self.placement.rotations[inputs.layer].table
        num_heads, count = queries.pairs.shape[:2]
        chunk = max(1, MAX_CHUNK_SCORES // (num_heads * len(blocks.document)))
        document_keys = cache.blocks.keys
        if self.placement.kernels:
            document_keys = blocks.split(document_keys[0])
        for start in range(0, count, chunk):
            stop = min(start + chunk, count)
            pairs, positions = queries.pairs[:, start:stop], queries.positions[start:stop]
            ranking = self._rank_suffix(pairs, cache, inputs, is_recorded=is_recorded)
            weights = arithmetic.suffix_weights(
                arithmetic.document_queries(pairs, positions, ranking.starts, table),
                queries.rotated[:, start:stop],
                document_keys,
                self.padding,
                cache.keys[:, : cache.length - count + stop],
                inputs.scoring,
            )
            yield start, ranking, weights

    def _rank_suffix(
        self, pairs: Tensor, cache: LayerCache, inputs: LayerInput, *, is_recorded: bool
    ) -> Ranking:
        """Rank the documents for suffix queries, complex (H, Q, head_dim / 2).

        Positions have no effect in a layer without RoPE: it ranks for a trace only; otherwise starts are 0.
        """
        plan, placement = self.stored.plan, self.placement
        rope = placement.rotations[inputs.layer].rope
        if rope.is_identity and not is_recorded:
            zeros = torch.zeros(*pairs.shape[:2], len(placement.blocks.lengths), dtype=torch.int32)
            return Ranking(*[zeros.to(pairs.device)] * 2)
        query, keys = from_pairs(rope.unscaled(pairs)), cache.blocks.unrotated_keys
        end = placement.layout.documents_end
        options: Any = {"kind": plan.method.importance, "reverse": plan.is_reversed}
        if placement.kernels:
            ranking: Ranking = placement.kernels.rank_for_suffix(
                query, keys, placement.tables, end, **options
            )
            return ranking
        return arithmetic.rank_for_suffix(
            query, keys, self.padding, placement.blocks, end, sinks=inputs.scoring.sinks, **options
        )

    def _attend_on_gpu(self, queries: SuffixQueries, cache: LayerCache, inputs: LayerInput) -> Tensor:
        """Return the attention output (H, Q, head_dim) of suffix queries from kernels of fixed order."""
        placement, kernels = self.placement, cast(Any, self.placement.kernels)
        output: Tensor = kernels.attend_suffix(
            from_pairs(queries.pairs),
            (cache.blocks.keys[0], cache.blocks.values),
            (cache.keys[:, : cache.length], cache.values[:, : cache.length]),
            placement.tables,
            placement.rotations[inputs.layer].cosines_and_sines,
            queries.positions.int(),
            self._rank_suffix(queries.pairs, cache, inputs, is_recorded=False).starts,
            inputs.scoring.softcap,
        )
        return output

    def prefix(self, layer: int, cache: LayerCache, length: int) -> KeysValues:
        """See Strategy."""
        return self.placement.export_prefix(layer, cache, length)

    def _rank_documents(self, slots: LayerInput) -> Tensor:
        """Return the start of document b for document a in block order, as `Ranking.starts`."""
        rope, dtype = self.placement.rotations[slots.layer].rope, slots.key.real.dtype
        if rope.is_identity and not self.recorder:
            count = len(self.placement.blocks.lengths)
            return self.placement.blocks.lengths.new_zeros(count, 1, count)
        if self.placement.kernels and rope.scale == 1:
            dtype = slots.value.dtype  # of the model, from which pairs were converted
        ranking = arithmetic.rank_for_documents(
            from_pairs(rope.unscaled(slots.query)).to(dtype),
            from_pairs(slots.key).to(dtype),
            self.placement.blocks,
            self.placement.layout.documents_end,
            scoring=slots.scoring,
            kind=self.stored.plan.method.importance,
            reverse=self.stored.plan.is_reversed,
            kernels=self.placement.kernels,
            tables=self.placement.tables,
        )
        if self.recorder:
            self.recorder.record_documents(slots.layer, self.placement.blocks, ranking)
        return ranking.starts
