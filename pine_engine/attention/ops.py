"""Operations of one layer on documents in block order: by torch, or by the kernels of a GPU.

Shapes as in `arithmetic.py`: H query heads, G key heads, Q queries, D documents, P document slots, d head
dimension. `Ops` fits every device; `KernelOps` has the same methods, with a fixed order of all sums.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor

from pine_engine.attention import arithmetic
from pine_engine.attention.arithmetic import QUERY_CHUNK, Ranking, causal_tail, copied, lay_out, tail_mask
from pine_engine.attention.blocks import BlockLayout
from pine_engine.attention.kv_cache import LayerCache
from pine_engine.attention.recorder import TraceRecorder
from pine_engine.attention.strategy import KeysValues, Rotation
from pine_engine.methods.plan import AttentionPlan
from pine_engine.network.layer_progress import add_flop
from pine_engine.network.registration import AttentionParams, LayerInput
from pine_engine.network.rope import as_pairs, from_pairs

KEY_BLOCK = 2**20
"""Complex numbers in the keys that are arranged at a time on the CPU, at least those of one head: 8 MB."""

MAX_CHUNK_SCORES = 4_000_000
"""Scores per chunk of suffix queries, which limits the memory of a long suffix."""


class SuffixQueries(NamedTuple):
    """Scaled queries of consecutive suffix tokens in one layer.

    Attributes:
        pairs: Complex (H, Q, d/2), unrotated.
        rotated: (H, Q, d), rotated to their positions, in pair layout.
        positions: int64 (Q,).
        num_keys: Number of tokens of prefix and suffix that the last query attends to.
    """

    pairs: Tensor
    rotated: Tensor
    positions: Tensor
    num_keys: int

    def chunks(self, size: int) -> Iterator["SuffixQueries"]:
        """Yield at most `size` queries at a time."""
        count = len(self.positions)
        for start in range(0, count, size):
            stop = min(start + size, count)
            parts = self.pairs[:, start:stop], self.rotated[:, start:stop], self.positions[start:stop]
            yield SuffixQueries(*parts, self.num_keys - count + stop)


@dataclass(frozen=True)
class Documents:
    """Documents of a prompt on one device.

    Attributes:
        blocks: Block order of the documents.
        slot_positions: int64 (P,), position of each slot as a query.
        visible: bool (D, D), True if document a attends to document b, in block order.
        recorder: Recorder of the attention of single tokens.
    """

    plan: AttentionPlan
    blocks: BlockLayout
    slot_positions: Tensor
    visible: Tensor
    recorder: TraceRecorder | None


class Ops:
    """Operations by torch, which fit every device."""

    kernels: ModuleType | None = None

    def __init__(self, documents: Documents, compute_dtype: torch.dtype) -> None:
        self.documents = documents
        self.padding = documents.blocks.padding_bias(compute_dtype)  # (P,), see padding_bias

    def ranking_dtype(self, slots: LayerInput, rotation: Rotation) -> torch.dtype:
        """Return the dtype in which documents are ranked for documents."""
        return slots.key.real.dtype

    def importance(self, query: Tensor, keys: Tensor, scoring: AttentionParams) -> Tensor:
        """Return the importance of every document for every document.

        Shape:
            query: (H, P, d), before RoPE. keys: (G, P, d), before RoPE. Returns: (D, H, D).
        """
        kind = self.documents.plan.method.importance
        return arithmetic.importance_for_documents(query, keys, self.documents.blocks, scoring, kind)

    def rank_suffix(self, query: Tensor, keys: Tensor, scoring: AttentionParams) -> Ranking:
        """Return importance and starts (H, Q, D) of the documents for every suffix token.

        Shape:
            query: (H, Q, d), before RoPE, scaled. keys: (G, P, d), before RoPE.
        """
        plan, blocks = self.documents.plan, self.documents.blocks
        return arithmetic.rank_for_suffix(
            query,
            keys,
            self.padding,
            blocks,
            plan.layout.documents_end,
            kind=plan.method.importance,
            reverse=plan.is_reversed,
            sinks=scoring.sinks,
        )

    def store_keys(self, keys: Tensor) -> list[Tensor]:
        """Return keys (G, P, d), rotated by their offset, in the form of the cache."""
        return self.documents.blocks.split(keys)

    def stored_by_class(self, cache: LayerCache) -> list[Tensor]:
        """Return the keys of a cache by length class, (G, documents, length, d)."""
        return cache.blocks.keys

    def split_suffix(self, queries: SuffixQueries) -> Iterator[SuffixQueries]:
        """Yield the queries that are computed at a time."""
        num_scores = len(queries.pairs) * len(self.documents.blocks.document)
        yield from queries.chunks(max(1, MAX_CHUNK_SCORES // num_scores))

    def attend_suffix(
        self,
        queries: SuffixQueries,
        starts: Tensor,
        cache: LayerCache,
        rotation: Rotation,
        scoring: AttentionParams,
        *,
        needs_weights: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the attention output (H, Q, d) of suffix tokens, and its weights, see suffix_weights.

        The weights may be None unless they are needed. `starts` (H, Q, D) is the position of the first token
        of each document for each query.
        """
        weights = self.suffix_weights(queries, starts, cache, rotation, scoring)  # (H, Q, P + K)
        values = cache.values[:, : queries.num_keys]  # (G, K, d)
        return arithmetic.apply_weights(weights, cache.blocks.values, values), weights

    def suffix_weights(
        self,
        queries: SuffixQueries,
        starts: Tensor,
        cache: LayerCache,
        rotation: Rotation,
        scoring: AttentionParams,
    ) -> Tensor:
        """Return the softmax weights (H, Q, P + K) of suffix tokens on all slots, prefix and suffix."""
        weights = arithmetic.suffix_weights(
            arithmetic.document_queries(queries.pairs, queries.positions, starts, rotation.table),
            queries.rotated,
            self.stored_by_class(cache),
            self.padding,
            cache.keys[:, : queries.num_keys],
            scoring,
        )
        add_flop(12 * weights.numel() * queries.pairs.shape[-1])  # d = 2 * pairs
        return weights

    def attend_documents(
        self, inputs: LayerInput, slots: LayerInput, prefix: KeysValues, starts: Tensor, rotation: Rotation
    ) -> list[Tensor]:
        """Return the attention output (H, n, d) of document tokens, in input order, in one or more parts.

        For each document, keys are arranged from the farthest to the closest, the prefix first and the
        document itself last, so that one fused call computes its attention. If heads rank differently, each
        head has its own arrangement. Heads of long prompts are arranged one after the other, in the same
        memory.

        Args:
            inputs: Document tokens in input order.
            slots: The same in block order; queries and keys are complex pairs, unrotated.
            prefix: Keys, rotated and in pair layout, and values of the prefix.
            starts: (D, H or 1, D), start of document b for document a, in block order.
            rotation: Rotation of the layer.
        """
        layout, blocks, table = self.documents.plan.layout, self.documents.blocks, rotation.table
        first, end, dtype = layout.prefix_length, layout.documents_end, inputs.query.dtype
        rotated = from_pairs(slots.query * table[self.documents.slot_positions]).to(dtype)  # (H, P, d)
        later = tail_mask(rotated[:, : min(QUERY_CHUNK, int(blocks.lengths.max()))], end)

        source = torch.cat((as_pairs(prefix[0]), slots.key), dim=1)  # (G, prefix + P, d/2), prefix rotated
        values = torch.cat((prefix[1].to(slots.value.dtype), slots.value), dim=1)  # (G, prefix + P, d)
        num_kv_heads, device = len(source), source.device
        num_arrangements = num_kv_heads if starts.shape[1] == 1 else len(slots.query)  # A = G or H
        offset_of_head = torch.arange(num_arrangements, device=device) // (num_arrangements // num_kv_heads)
        offset_of_head = offset_of_head[:, None] * source.shape[1]  # (A, 1)
        prefix_index = torch.arange(first, device=device).expand(num_arrangements, -1)
        no_turn = torch.ones_like(table[:first])
        turn = torch.cat((no_turn, table[first:end]))  # (K, d/2)
        size = num_arrangements * end
        if device.type == "cpu":
            size = min(size, max(end, KEY_BLOCK // source.shape[-1]))
        keys_out = source.new_empty(size, source.shape[-1])
        values_out = values.new_empty(size, values.shape[-1])
        physical = torch.cat((prefix_index[0], blocks.token_index))
        outputs: dict[int, Tensor] = {}
        for document, slot in enumerate(blocks.order.tolist()):
            query = copied(rotated[:, blocks.rows[document]]).unflatten(0, (num_arrangements, -1))
            slots_of_keys = lay_out(starts[document], document, self.documents.visible[document], blocks)
            index = torch.cat((prefix_index, (slots_of_keys + first).expand(num_arrangements, -1)), dim=1)
            if not self.documents.plan.contiguous_positions:
                starts_of_keys = starts[document].gather(1, blocks.document[slots_of_keys])
                turn = table[starts_of_keys + blocks.offset[slots_of_keys]]
                turn = torch.cat((no_turn.expand(len(turn), -1, -1), turn), dim=1)
            turn_of_head, num_keys = turn.expand(num_arrangements, -1, -1), index.shape[1]  # (A, K, d/2)
            of_heads = []
            for head in range(0, num_arrangements, size // num_keys):
                part = slice(head, head + size // num_keys)
                places = (index[part] + offset_of_head[part]).flatten()
                keys, arranged = keys_out[: len(places)], values_out[: len(places)]
                torch.index_select(source.flatten(0, 1), 0, places, out=keys)
                torch.index_select(values.flatten(0, 1), 0, places, out=arranged)
                keys = from_pairs(keys.view(-1, num_keys, keys.shape[-1]).mul_(turn_of_head[part])).to(dtype)
                arranged, own = arranged.view(len(keys), num_keys, -1), query[part].flatten(0, 1)
                first_head = head * query.shape[1]
                scoring = inputs.scoring.of_heads(slice(first_head, first_head + len(own)))
                of_heads.append(causal_tail(own, keys, arranged, scoring, later=later))
                if self.documents.recorder:
                    self.documents.recorder.record_tokens(
                        replace(inputs, query=own),
                        layout.document_slice(slot).start,
                        keys,
                        physical[index[part]],
                        first_head=first_head,
                    )
            outputs[slot] = of_heads[0] if len(of_heads) == 1 else torch.cat(of_heads)
        return [outputs[slot] for slot in range(len(outputs))]


class KernelOps(Ops):
    """Operations by kernels of a GPU, bitwise identical at every index of a document or query."""

    def __init__(self, documents: Documents, compute_dtype: torch.dtype, kernels: ModuleType) -> None:
        super().__init__(documents, compute_dtype)
        self.kernels: ModuleType = kernels
        blocks = documents.blocks
        self.tables = kernels.DocumentTables.of(blocks)
        self.slot_positions = documents.slot_positions.int()
        self.visible = documents.visible.to(torch.int8)
        tokens = torch.arange(len(blocks.token_index), device=blocks.token_index.device)[~blocks.is_padding]
        self.slot_of_token = tokens[blocks.token_index[tokens].argsort()]  # in input order

    def ranking_dtype(self, slots: LayerInput, rotation: Rotation) -> torch.dtype:
        """See Ops; unscaled pairs are in the dtype of the model, from which they were converted."""
        return slots.value.dtype if rotation.rope.scale == 1 else super().ranking_dtype(slots, rotation)

    def importance(self, query: Tensor, keys: Tensor, scoring: AttentionParams) -> Tensor:
        """See Ops."""
        kind = self.documents.plan.method.importance
        importance: Tensor = self.kernels.document_importance(query, keys, self.tables, scoring.scale, kind)
        return importance

    def rank_suffix(self, query: Tensor, keys: Tensor, scoring: AttentionParams) -> Ranking:
        """See Ops."""
        plan, end = self.documents.plan, self.documents.plan.layout.documents_end
        ranking: Ranking = self.kernels.rank_for_suffix(
            query, keys, self.tables, end, kind=plan.method.importance, reverse=plan.is_reversed
        )
        return ranking

    def store_keys(self, keys: Tensor) -> list[Tensor]:
        """See Ops."""
        return [keys.contiguous()]

    def stored_by_class(self, cache: LayerCache) -> list[Tensor]:
        """See Ops."""
        return self.documents.blocks.split(cache.blocks.keys[0])

    def split_suffix(self, queries: SuffixQueries) -> Iterator[SuffixQueries]:
        """See Ops; all at once, because the size of tiles depends on the number of queries."""
        yield queries

    def attend_suffix(
        self,
        queries: SuffixQueries,
        starts: Tensor,
        cache: LayerCache,
        rotation: Rotation,
        scoring: AttentionParams,
        *,
        needs_weights: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """See Ops."""
        output: Tensor = self.kernels.attend_suffix(
            from_pairs(queries.pairs),
            (cache.blocks.keys[0], cache.blocks.values),
            (cache.keys[:, : queries.num_keys], cache.values[:, : queries.num_keys]),
            self.tables,
            rotation.cosines_and_sines,
            queries.positions.int(),
            starts,
            scoring.softcap,
        )
        if not needs_weights:
            return output, None
        return output, self.suffix_weights(queries, starts, cache, rotation, scoring)

    def attend_documents(
        self, inputs: LayerInput, slots: LayerInput, prefix: KeysValues, starts: Tensor, rotation: Rotation
    ) -> list[Tensor]:
        """See Ops."""
        if self.documents.recorder and self.documents.recorder.records_tokens(inputs.layer):
            super().attend_documents(inputs, slots, prefix, starts, rotation)
        dtype = inputs.query.dtype
        keys = from_pairs(slots.key * rotation.table[self.documents.blocks.offset])  # (G, P, d)
        output = self.kernels.attend_documents(
            from_pairs(slots.query).to(dtype),
            torch.cat((prefix[0], keys), dim=1).to(dtype),  # (G, prefix + P, d)
            torch.cat((prefix[1].to(dtype), slots.value.to(dtype)), dim=1),
            self.tables,
            rotation.cosines_and_sines,
            self.slot_positions,
            starts.int(),
            self.visible,
            inputs.scoring,
        )
        return [output[:, self.slot_of_token]]  # (H, n, d)
