"""Documents that attend to each other, with rotation by PINE: prefill, and positions that the plan fixes.

`Placement` prefills prefix and documents; the starts of the documents come from the plan, or from the
importance for each query (`ranked.py`). Source: specification 3.5 to 3.8.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from pine_engine.attention.arithmetic import QUERY_CHUNK, causal_tail, copied, lay_out, tail_mask
from pine_engine.attention.blocks import build_blocks
from pine_engine.attention.causal import CausalAttention
from pine_engine.attention.kv_cache import LayerCache, new_layer
from pine_engine.attention.strategy import KeysValues, PromptState, Strategy, placing_kernels
from pine_engine.network.registration import LayerInput
from pine_engine.network.rope import as_pairs, from_pairs
from pine_engine.prompts.layout import IntArray

KEY_BLOCK = 2**20
"""Complex numbers in the keys that are arranged at a time on the CPU, at least those of one head: 8 MB."""


class Placement:
    """Prefill of prefix and documents from unrotated queries and keys."""

    def __init__(self, state: PromptState, device: torch.device) -> None:
        plan, self.layout, self.recorder = state.plan, state.plan.layout, state.recorder
        self.blocks = build_blocks(self.layout, device)
        self.rotations = state.rotations(device)
        self.positions = state.positions.to(device)  # of every token as a query, (num_tokens,)
        # bool (D, D), True if document a attends to document b, in block order.
        self.visible = torch.from_numpy(plan.visible).to(device)[self.blocks.order][:, self.blocks.order]
        self.is_contiguous = plan.contiguous_positions
        self.kernels = placing_kernels(state, device)
        self.tables = None
        if self.kernels:
            blocks = self.blocks
            self.tables = self.kernels.DocumentTables.of(blocks)
            self.slot_positions = self.positions[blocks.token_index].int()
            self.visible_flags = self.visible.to(torch.int8)
            tokens = torch.arange(len(blocks.token_index), device=device)[~blocks.is_padding]
            # Slot of each document token, in input order.
            self.slot_of_token = tokens[blocks.token_index[tokens].argsort()]
        self.compute_dtype = state.compute_dtype

    def prefill_prefix(
        self, inputs: LayerInput, prefix: KeysValues | None
    ) -> tuple[list[Tensor], KeysValues, LayerInput, LayerInput]:
        """Compute the prefix, or convert a prefilled one, and split the remaining input.

        Returns the attention output of the prefix, empty if it was prefilled; its keys, rotated and in pair
        layout, and values; the input of the documents; the input of the suffix.
        """
        length, count = self.layout.prefix_length, self.layout.documents_end - self.layout.prefix_length
        rotation, outputs = self.rotations[inputs.layer], []
        if prefix is None:
            front, inputs = inputs.tokens(0, length), inputs.tokens(length)
            query = rotation.rotate(front.query, self.positions[:length]).to(front.query.dtype)
            keys = rotation.rotate(front.key, self.positions[:length])
            outputs.append(
                causal_tail(query, keys.to(front.key.dtype), front.value, front.scoring, kernels=self.kernels)
            )
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

        Queries (H, P, d/2) and keys (G, P, d/2) are complex pairs, unrotated.
        """
        rope = self.rotations[documents.layer].rope
        index = self.blocks.token_index - self.layout.prefix_length
        queries, keys = (
            rope.to_pairs(part[:, index].to(self.compute_dtype)) for part in (documents.query, documents.key)
        )
        return replace(documents, query=queries, key=keys, value=documents.value[:, index])

    def prefill_documents(
        self, documents: LayerInput, slots: LayerInput, prefix: KeysValues, starts: Tensor
    ) -> list[Tensor]:
        """Return the attention output (H, n, d) of all documents, in input order, in one or more parts.

        `starts` (D, H, D) is the start of document b for document a in block order; (D, 1, D) if all heads
        agree.
        """
        if not self.kernels:
            return self._arrange_documents(documents, slots, prefix, starts)
        if self.recorder and self.recorder.records_tokens(documents.layer):
            self._arrange_documents(documents, slots, prefix, starts)
        blocks, rotation, dtype = self.blocks, self.rotations[documents.layer], documents.query.dtype
        keys = from_pairs(slots.key * rotation.table[blocks.offset])
        output = self.kernels.attend_documents(
            from_pairs(slots.query).to(dtype),
            torch.cat((prefix[0], keys), dim=1).to(dtype),
            torch.cat((prefix[1].to(dtype), slots.value.to(dtype)), dim=1),
            self.tables,
            rotation.cosines_and_sines,
            self.slot_positions,
            starts.int(),
            self.visible_flags,
            documents.scoring,
        )
        return [output[:, self.slot_of_token]]

    def _arrange_documents(
        self, documents: LayerInput, slots: LayerInput, prefix: KeysValues, starts: Tensor
    ) -> list[Tensor]:
        """Return the attention output of each document, in input order, from keys that are arranged for it.

        For each document, keys are arranged from the farthest to the closest, the prefix first and the
        document itself last, so that one fused call computes its attention. If heads rank differently, each
        head has its own arrangement. Heads of long prompts are arranged one after the other, in the same
        memory.
        """
        blocks, table = self.blocks, self.rotations[documents.layer].table
        first, end, dtype = self.layout.prefix_length, self.layout.documents_end, documents.query.dtype
        rotated = from_pairs(slots.query * table[self.positions[blocks.token_index]]).to(dtype)
        later = tail_mask(rotated[:, : min(QUERY_CHUNK, int(blocks.lengths.max()))], end)

        # (key heads, prefix + slots) vectors, the prefix rotated already.
        source = torch.cat((as_pairs(prefix[0]), slots.key), dim=1)
        values = torch.cat((prefix[1].to(slots.value.dtype), slots.value), dim=1)
        num_kv_heads, device = len(source), source.device
        num_arrangements = num_kv_heads if starts.shape[1] == 1 else len(slots.query)
        offset_of_head = torch.arange(num_arrangements, device=device) // (num_arrangements // num_kv_heads)
        offset_of_head = offset_of_head[:, None] * source.shape[1]
        prefix_index = torch.arange(first, device=device).expand(num_arrangements, -1)
        no_turn = torch.ones_like(table[:first])
        turn = torch.cat((no_turn, table[first:end]))
        size = num_arrangements * end
        if device.type == "cpu":
            size = min(size, max(end, KEY_BLOCK // source.shape[-1]))
        keys_out = source.new_empty(size, source.shape[-1])
        values_out = values.new_empty(size, values.shape[-1])
        physical = torch.cat((prefix_index[0], blocks.token_index))
        outputs: dict[int, Tensor] = {}
        for document, slot in enumerate(blocks.order.tolist()):
            query = copied(rotated[:, blocks.rows[document]]).unflatten(0, (num_arrangements, -1))
            slots_of_keys = lay_out(starts[document], document, self.visible[document], blocks)
            index = torch.cat((prefix_index, (slots_of_keys + first).expand(num_arrangements, -1)), dim=1)
            if not self.is_contiguous:
                starts_of_keys = starts[document].gather(1, blocks.document[slots_of_keys])
                turn = table[starts_of_keys + blocks.offset[slots_of_keys]]
                turn = torch.cat((no_turn.expand(len(turn), -1, -1), turn), dim=1)
            turn_of_head, num_keys = turn.expand(num_arrangements, -1, -1), index.shape[1]
            of_heads = []
            for head in range(0, num_arrangements, size // num_keys):
                part = slice(head, head + size // num_keys)
                places = (index[part] + offset_of_head[part]).flatten()
                keys, arranged = keys_out[: len(places)], values_out[: len(places)]
                torch.index_select(source.flatten(0, 1), 0, places, out=keys)
                torch.index_select(values.flatten(0, 1), 0, places, out=arranged)
                keys = from_pairs(keys.view(-1, num_keys, keys.shape[-1]).mul_(turn_of_head[part])).to(dtype)
                arranged, own = arranged.view(len(keys), num_keys, -1), query[part].flatten(0, 1)
                own_heads = slice(head * query.shape[1], head * query.shape[1] + len(own))
                scoring = documents.scoring.of_heads(own_heads)
                of_heads.append(causal_tail(own, keys, arranged, scoring, later=later))
                if self.recorder:
                    first_query = self.layout.document_slice(slot).start
                    of_part = replace(documents, query=own)
                    self.recorder.record_tokens(
                        of_part, first_query, keys, physical[index[part]], first_head=head * query.shape[1]
                    )
            outputs[slot] = of_heads[0] if len(of_heads) == 1 else torch.cat(of_heads)
        return [outputs[slot] for slot in range(len(outputs))]


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
