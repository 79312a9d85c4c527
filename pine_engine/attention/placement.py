"""Documents that see others, each at places of its own, where we rotate. Source: specification 3.5 to 3.8.

How a prompt is read up to its suffix, once it is known where the documents start: from the plan (`placed.py`)
or from what each query finds important (`ranked.py`).
"""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from pine_engine.attention.arithmetic import causal_tail, copied, lay_out, positions_of
from pine_engine.attention.blocks import BlockLayout, build_blocks
from pine_engine.attention.kv_cache import LayerCache
from pine_engine.attention.recorder import TraceRecorder
from pine_engine.attention.strategy import KeysValues, LayerInput, Rotation, StrategyContext
from pine_engine.network.rope import as_pairs, from_pairs
from pine_engine.prompts.layout import TokenLayout


@dataclass(frozen=True)
class Slots:
    """Documents by slot, unrotated: complex queries (H, P, d/2) and keys (G, P, d/2), values (G, P, d)."""

    queries: Tensor
    keys: Tensor
    values: Tensor


@dataclass(frozen=True)
class Placement:
    """How prefix and documents are read, with unrotated queries and keys.

    positions: int64 (n + room,), the position of every token as a query. visible: bool (D, D), which document
    sees which, in block order. is_contiguous: what a document sees stands without gaps. compute_dtype: see
    Reading.
    """

    layout: TokenLayout
    blocks: BlockLayout
    rotations: tuple[Rotation, ...]
    positions: Tensor
    visible: Tensor
    is_contiguous: bool
    compute_dtype: torch.dtype
    recorder: TraceRecorder | None

    @classmethod
    def of(cls, reading: StrategyContext) -> Self:
        """The placement with all that it needs for one prompt."""
        plan, blocks = reading.plan, build_blocks(reading.plan.layout, reading.device)
        return cls(
            layout=plan.layout,
            blocks=blocks,
            rotations=reading.rotations(),
            positions=reading.positions(),
            visible=torch.from_numpy(plan.visible).to(reading.device)[blocks.order][:, blocks.order],
            is_contiguous=plan.contiguous_positions,
            compute_dtype=reading.compute_dtype,
            recorder=reading.recorder,
        )

    def read_prefix(self, front: LayerInput) -> tuple[Tensor, KeysValues]:
        """Attention (H, S, d) of the prefix; its keys, rotated and in pair layout, and values."""
        rotation, positions = self.rotations[front.layer], self.positions[: self.layout.prefix_length]
        query = rotation.rotate(front.query, positions).to(front.query.dtype)
        keys = rotation.rotate(front.key, positions)
        output = causal_tail(query, keys.to(front.key.dtype), front.value, front.scoring)
        if self.recorder:
            index = torch.arange(len(positions), device=keys.device)
            self.recorder.record_asked(front.layer, 0, query, keys, front.scoring, key_index=index)
        return output, (keys, front.value.to(self.compute_dtype))

    def take_prefix(self, layer: int, prefix: KeysValues) -> KeysValues:
        """The prefix as read_prefix gives it, from one that has been read; see Strategy.prefill."""
        keys, values = (part.to(self.compute_dtype) for part in prefix)
        return from_pairs(self.rotations[layer].rope.to_pairs(keys)), values

    def give_prefix(self, layer: int, cache: LayerCache, length: int) -> KeysValues:
        """See Strategy.prefix; the cache holds it in pair layout."""
        keys, values = (part[:, :length].to(self.compute_dtype) for part in (cache.keys, cache.values))
        return self.rotations[layer].rope.to_vectors(as_pairs(keys)), values

    def to_slots(self, documents: LayerInput) -> Slots:
        """The documents' tokens in block order, where every sum over them runs."""
        rope = self.rotations[documents.layer].rope
        index = self.blocks.token_index - self.layout.prefix_length
        queries, keys = (
            rope.to_pairs(part[:, index].to(self.compute_dtype)) for part in (documents.query, documents.key)
        )
        return Slots(queries, keys, documents.value[:, index])

    def read_documents(
        self, documents: LayerInput, slots: Slots, prefix: KeysValues, starts: Tensor
    ) -> list[Tensor]:
        """Attention (H, n, d) of each document, in input order.

        starts: int64 (D, H, D), where document b starts as seen from document a, in block order; (D, 1, D) if
        all heads agree.

        For each query document the keys are laid out once from the farthest to the closest, prefix first
        and own document last, which a fused call takes. Per head where heads rank on their own. Queries
        are brought into block order and copied for each document, because kernels may treat the same row
        otherwise at another place in memory.
        """
        blocks, table = self.blocks, self.rotations[documents.layer].table
        first, end, dtype = self.layout.prefix_length, self.layout.documents_end, documents.query.dtype
        rotated = from_pairs(slots.queries * table[self.positions[blocks.token_index]]).to(dtype)

        # Rows of (heads held, prefix + slots), the prefix rotated already.
        source = torch.cat((as_pairs(prefix[0]), slots.keys), dim=1)
        values = torch.cat((prefix[1].to(slots.values.dtype), slots.values), dim=1)
        num_kv_heads, device = len(source), source.device
        heads_held = num_kv_heads if starts.shape[1] == 1 else len(slots.queries)
        head_offset = torch.arange(heads_held, device=device) // (heads_held // num_kv_heads)
        head_offset = head_offset[:, None] * source.shape[1]
        prefix_index = torch.arange(first, device=device).expand(heads_held, -1)
        still = torch.ones_like(table[:first])
        keys_out, values_out = source.new_empty(0), values.new_empty(0)
        outputs: dict[int, Tensor] = {}
        for document, place in enumerate(blocks.order.tolist()):
            own_query = copied(rotated[:, blocks.rows[document]])
            seen = lay_out(starts[document], document, self.visible[document], blocks)
            index = torch.cat((prefix_index, (seen + first).expand(heads_held, -1)), dim=1)
            index = (index + head_offset).flatten()
            if len(index) != len(keys_out):  # other documents see more or fewer
                keys_out = source.new_empty(len(index), source.shape[-1])
                values_out = values.new_empty(len(index), values.shape[-1])
            torch.index_select(source.flatten(0, 1), 0, index, out=keys_out)
            torch.index_select(values.flatten(0, 1), 0, index, out=values_out)
            if self.is_contiguous:
                turn = torch.cat((still, table[first:end]))
            else:
                turn = table[positions_of(seen, starts[document], blocks)]
                turn = torch.cat((still.expand(len(turn), -1, -1), turn), dim=1)
            keys = from_pairs(keys_out.view(heads_held, -1, source.shape[-1]).mul_(turn)).to(dtype)
            outputs[place] = causal_tail(
                own_query, keys, values_out.view(heads_held, -1, values.shape[-1]), documents.scoring
            )
            if self.recorder:
                index = torch.cat((prefix_index[: len(seen)], blocks.token_index[seen]), dim=1)
                self.recorder.record_asked(
                    documents.layer,
                    self.layout.document_slice(place).start,
                    own_query,
                    keys,
                    documents.scoring,
                    key_index=index.expand(heads_held, -1),
                )
        return [outputs[place] for place in range(len(outputs))]
