"""A whole prompt in one pass: the prefix, the documents as the method has them see each other, the suffix."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pine_engine.attention.arithmetic import causal_tail, copied, lay_out, positions_of, rank_for_documents
from pine_engine.attention.decode import attend_continuation
from pine_engine.attention.kv_cache import DocumentBlocks, LayerCache, new_layer
from pine_engine.attention.recording import record_asked
from pine_engine.attention.state import Row
from pine_engine.network.registration import Scoring
from pine_engine.network.rope import as_pairs, from_pairs
from pine_engine.prompts.layout import TokenLayout


@dataclass(frozen=True)
class PrefillPass:
    """A whole prompt under one method; fills the row's cache.

    prefix_of: a row that has read the same prefix, whose keys and values are used again: the pass then
    begins with the documents. Rows of the batch behind the prompt are padding and get zeros.
    """

    row: Row
    room: int
    on_layer: Callable[[int], None]
    prefix_of: Row | None = None

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scoring: Scoring) -> Tensor:
        """See Pass; the batch has one row."""
        self.on_layer(layer)
        here = replace(self, row=self.row.on(query.device))
        return here._attend(layer, query, key, value, scoring)

    def _attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scoring: Scoring) -> Tensor:
        plan = self.row.state.plan
        layout = plan.layout
        skipped = layout.prefix_length if self.prefix_of else 0
        count = layout.num_tokens - skipped
        output = torch.zeros_like(query)
        query, key, value = (part[0, :, :count] for part in (query, key, value))
        if plan.model_rotates and plan.method.mask == "causal":
            cache = self._open_layer(key, blocks=None)
            if self.prefix_of:
                cache.append(*self._read_prefix(layer, key.dtype))
            output[0, :, :count] = attend_continuation(self.row, layer, query, key, value, scoring)
            return output

        if self.prefix_of:
            prefix = self._read_prefix(layer, key.dtype)
        else:
            prefix = self._attend_prefix(layer, query, key, value, scoring, output[0])
        documents = slice(layout.prefix_length - skipped, layout.documents_end - skipped)
        attend_documents = self._isolated if plan.model_rotates else self._placed
        attend_documents(
            layer,
            query[:, documents],
            key[:, documents],
            value[:, documents],
            prefix,
            scoring,
            output[0, :, documents],
        )
        suffix = slice(documents.stop, count)
        output[0, :, suffix] = attend_continuation(
            self.row, layer, query[:, suffix], key[:, suffix], value[:, suffix], scoring
        )
        return output

    def _open_layer(self, like: Tensor, *, blocks: DocumentBlocks | None) -> LayerCache:
        """A new layer of the cache with room for all that is not in blocks, in the dtype it is read in."""
        layout = self.row.state.plan.layout
        in_blocks = layout.documents_end - layout.prefix_length if blocks else 0
        cache = new_layer(
            num_kv_heads=like.shape[0],
            capacity=layout.num_tokens - in_blocks + self.room,
            head_dim=like.shape[-1],
            dtype=self.row.state.compute_dtype if blocks else like.dtype,
            device=like.device,
            blocks=blocks,
        )
        self.row.cache.layers.append(cache)
        return cache

    def _read_prefix(self, layer: int, model_dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Rotated keys and values (G, S, d) of the prefix from the row that has read it, as this row's
        method uses them: as the model gives them, or in pair layout and compute dtype."""
        assert self.prefix_of
        state, theirs, rope = self.row.state, self.prefix_of.state, self.row.state.rope(layer)
        cache, length = self.prefix_of.cache.layers[layer], state.plan.layout.prefix_length
        keys, values = (part[:, :length].to(state.compute_dtype) for part in (cache.keys, cache.values))
        if state.plan.model_rotates:
            keys = keys if theirs.plan.model_rotates else rope.to_vectors(as_pairs(keys))
            return keys.to(model_dtype), values.to(model_dtype)
        return (from_pairs(rope.to_pairs(keys)) if theirs.plan.model_rotates else keys), values

    def _attend_prefix(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scoring: Scoring, output: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Attention of the prefix, the same in all methods; its keys and values as in _read_prefix."""
        state = self.row.state
        rows = slice(0, state.plan.layout.prefix_length)
        query, key, value = query[:, rows], key[:, rows], value[:, rows]
        keys, values = key, value
        if not state.plan.model_rotates:
            positions, rotation = state.positions[rows], state.rotation(layer)
            query = rotation.rotate(query, positions).to(query.dtype)
            keys, values = rotation.rotate(key, positions), value.to(state.compute_dtype)
        output[:, rows] = causal_tail(query, keys.to(key.dtype), value, scoring)
        if state.recorder:
            index = torch.arange(rows.stop, device=key.device)
            record_asked(state.recorder, layer, 0, query, keys, index, scoring)
        return keys, values

    def _isolated(
        self,
        layer: int,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        prefix: tuple[Tensor, Tensor],
        scoring: Scoring,
        output: Tensor,
    ) -> None:
        """Documents of which none sees another; the model has rotated. Source: specification 3.2, 3.3."""
        state = self.row.state
        layout = state.plan.layout
        for rows in _document_rows(layout):
            keys, values = (
                torch.cat((front, part[:, rows]), dim=1)
                for front, part in zip(prefix, (key, value), strict=True)
            )
            output[:, rows] = causal_tail(copied(query[:, rows]), keys, values, scoring)
            if state.recorder:
                start = rows.start + layout.prefix_length
                index = torch.arange(start, rows.stop + layout.prefix_length, device=key.device)
                index = torch.cat((torch.arange(layout.prefix_length, device=key.device), index))
                record_asked(state.recorder, layer, start, query[:, rows], keys, index, scoring)
        if state.stored_order is not None:
            stored = state.stored_order - layout.prefix_length
            key, value = key[:, stored], value[:, stored]
        if state.suffix_shift is not None:
            rotation = state.rotation(layer)
            turned = rotation.rope.to_pairs(key.to(state.compute_dtype))
            turned = turned * rotation.table[state.suffix_shift]
            key = rotation.rope.to_vectors(turned).to(key.dtype)
        cache = self._open_layer(key, blocks=None)
        cache.append(*prefix)
        cache.append(key, value)

    def _placed(
        self,
        layer: int,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        prefix: tuple[Tensor, Tensor],
        scoring: Scoring,
        output: Tensor,
    ) -> None:
        """Documents that see others, each at places of its own (specification 3.5 to 3.8).

        For each query document the keys are laid out once from the farthest to the closest, prefix first
        and own document last, which a fused call takes. Per head where heads rank on their own. Queries
        are brought into block order and copied for each document, because kernels may treat the same row
        otherwise at another place in memory.
        """
        state = self.row.state
        plan, blocks, rotation = state.plan, state.block_layout, state.rotation(layer)
        assert blocks is not None
        rope, table = rotation.rope, rotation.table
        first, end = plan.layout.prefix_length, plan.layout.documents_end
        dtype = state.compute_dtype

        stored = blocks.token_index - first
        query_pairs = rope.to_pairs(query[:, stored].to(dtype))
        rotated = from_pairs(query_pairs * table[state.positions[blocks.token_index]]).to(query.dtype)
        key_pairs = rope.to_pairs(key[:, stored].to(dtype))
        values = torch.cat((prefix[1].to(value.dtype), value[:, stored]), dim=1)
        starts = self._document_starts(layer, query_pairs, key_pairs, scoring)
        in_input_order = _document_rows(plan.layout)

        # Rows of (heads held, prefix + slots), the prefix rotated already.
        source = torch.cat((as_pairs(prefix[0]), key_pairs), dim=1)
        heads_held = key.shape[0] if starts.shape[1] == 1 else query.shape[0]
        head_offset = torch.arange(heads_held, device=key.device) // (heads_held // key.shape[0])
        head_offset = head_offset[:, None] * source.shape[1]
        prefix_index = torch.arange(first, device=key.device).expand(heads_held, -1)
        still = torch.ones_like(table[:first])
        visible = plan.visible.to(blocks.order.device)[blocks.order][:, blocks.order]
        keys_out, values_out = source.new_empty(0), values.new_empty(0)
        for document, index_in_input in enumerate(blocks.order.tolist()):
            own_rows = in_input_order[index_in_input]
            own_query = copied(rotated[:, blocks.rows[document]])
            slots = lay_out(starts[document], document, visible[document], blocks)
            index = torch.cat((prefix_index, (slots + first).expand(heads_held, -1)), dim=1)
            index = (index + head_offset).flatten()
            if len(index) != len(keys_out):  # other documents see more or fewer
                keys_out = source.new_empty(len(index), source.shape[-1])
                values_out = values.new_empty(len(index), values.shape[-1])
            torch.index_select(source.flatten(0, 1), 0, index, out=keys_out)
            torch.index_select(values.flatten(0, 1), 0, index, out=values_out)
            if plan.tiles:
                turn = torch.cat((still, table[first:end]))
            else:
                turn = table[positions_of(slots, starts[document], blocks)]
                turn = torch.cat((still.expand(len(turn), -1, -1), turn), dim=1)
            placed = from_pairs(keys_out.view(heads_held, -1, source.shape[-1]).mul_(turn)).to(query.dtype)
            output[:, own_rows] = causal_tail(
                own_query, placed, values_out.view(heads_held, -1, values.shape[-1]), scoring
            )
            if state.recorder:
                physical = torch.cat((prefix_index[: len(slots)], blocks.token_index[slots]), dim=1)
                record_asked(
                    state.recorder,
                    layer,
                    first + own_rows.start,
                    own_query,
                    placed,
                    physical.expand(heads_held, -1),
                    scoring,
                )
        self._keep(layer, key, value, key_pairs, values[:, first:], prefix)

    def _document_starts(
        self, layer: int, query_pairs: Tensor, key_pairs: Tensor, scoring: Scoring
    ) -> Tensor:
        """Start of document b as seen from document a, int64 (D, H, D), or (D, 1, D) if all heads agree;
        both in block order, as the slots of query_pairs (H, P, d/2) and key_pairs (G, P, d/2)."""
        state = self.row.state
        plan, blocks = state.plan, state.block_layout
        assert blocks is not None
        if plan.document_starts is not None:
            order = blocks.order
            return plan.document_starts.to(order.device)[order][:, order][:, None]
        query = from_pairs(state.rope(layer).unscaled(query_pairs)) * scoring.scale
        ranked = rank_for_documents(
            [query[:, part].reshape(key_pairs.shape[0], -1, query.shape[-1]) for part in blocks.rows],
            from_pairs(key_pairs),
            blocks,
            plan.layout.documents_end,
            kind=plan.method.importance,
            reverse=plan.is_reversed,
        )
        if state.recorder:
            starts = ranked.starts.expand_as(ranked.importance)
            state.recorder.record_documents(layer, blocks, ranked.importance, starts)
        return ranked.starts

    def _keep(
        self,
        layer: int,
        key: Tensor,
        value: Tensor,
        key_pairs: Tensor,
        values: Tensor,
        prefix: tuple[Tensor, Tensor],
    ) -> None:
        """Fills the cache: keys where the suffix sees them, or, where it ranks, by document and offset.

        key, value: (G, documents, d) in physical order; key_pairs, values: the same by slot.
        """
        state = self.row.state
        plan, blocks, rotation = state.plan, state.block_layout, state.rotation(layer)
        assert blocks is not None
        if plan.suffix_document_starts is not None:
            layout = plan.layout
            moved = plan.suffix_document_starts - torch.from_numpy(layout.document_starts)
            moved = torch.repeat_interleave(moved, torch.from_numpy(layout.lengths))
            positions = moved + torch.arange(layout.prefix_length, layout.documents_end)
            cache = self._open_layer(key, blocks=None)
            cache.append(*prefix)
            cache.append(rotation.rotate(key, positions.to(key.device)), value)
            return
        document_blocks = DocumentBlocks(
            keys=blocks.split(from_pairs(key_pairs * rotation.table[blocks.offset])),
            values=values.to(state.compute_dtype).contiguous(),
            unrotated_keys=from_pairs(key_pairs),
        )
        self._open_layer(key, blocks=document_blocks).append(prefix[0], prefix[1].to(state.compute_dtype))


def _document_rows(layout: TokenLayout) -> list[slice]:
    """Where each document's tokens are, counted from the first document's first token."""
    starts = (layout.document_starts - layout.prefix_length).tolist()
    return [slice(start, start + len(ids)) for start, ids in zip(starts, layout.documents, strict=True)]
