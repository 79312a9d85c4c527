"""Causal attention with rotation by PINE: heads divide positions by their ratios, or RoPE has another base.

Sources: Zhang et al. 2024, VITA-Group/Ms-PoE; Chen et al. 2024, attention-buckets (specification 3.10).
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from pine_engine.attention.arithmetic import attention_weights
from pine_engine.attention.causal import CausalAttention, extend_in_parts
from pine_engine.attention.kv_cache import LayerCache, new_layer
from pine_engine.attention.strategy import KeysValues, PromptState, Strategy
from pine_engine.methods.table import FIRST_SCALED_LAYER, MAX_RATIO, MIN_RATIO
from pine_engine.network.parallel import gather_heads, num_processes
from pine_engine.network.registration import LayerInput
from pine_engine.network.rope import from_pairs

OUTLIER_FACTOR = 3
"""A key stands out if its attention weight is larger than the mean weight times this number."""


class RotatedAttention(Strategy):
    """Every token attends to all earlier ones; the query heads of a key head have its ratio."""

    def __init__(self, state: PromptState, device: torch.device) -> None:
        self.method = state.plan.method
        self.rotations = state.rotations(device)
        self.positions = state.positions.to(device, state.compute_dtype)
        self.num_processes = num_processes(state.patched_model.network)
        self.causal = CausalAttention(state, device)  # of rotated queries and keys
        self.batch_key = "rotated", self.method, self.causal.batch_key

    def prefill(self, inputs: LayerInput, prefix: KeysValues | None) -> tuple[Tensor, LayerCache]:
        """See Strategy."""
        cache = new_layer(inputs.key, len(self.positions))
        cache.ratios = self._choose_ratios(inputs)
        if prefix:
            cache.append(*prefix)
        return extend_in_parts(self, inputs, cache, self.causal.stored.plan.layout), cache

    def extend(
        self, inputs: LayerInput, cache: LayerCache, members: Sequence["RotatedAttention | None"] = ()
    ) -> Tensor:
        """See DecodeStrategy."""
        rope = self.rotations[inputs.layer].rope
        positions = self.positions[cache.length : cache.length + inputs.query.shape[1]]
        turn = rope.rotations(positions / cache.ratios[:, None], inputs.key.shape[-1])  # (G, n, d / 2)

        def rotate(vectors: Tensor) -> Tensor:
            pairs = rope.to_pairs(vectors.to(positions.dtype))
            turned = pairs * turn.repeat_interleave(len(vectors) // len(turn), dim=0)
            return from_pairs(turned).to(vectors.dtype)

        rotated = replace(inputs, query=rotate(inputs.query), key=rotate(inputs.key))
        causal = [member.causal if member else None for member in members]
        return self.causal.extend(rotated, cache, causal)

    def _choose_ratios(self, inputs: LayerInput) -> Tensor:
        """Return the ratio of each key head, (G,), by the share of keys that stand out to the last token."""
        num_kv_heads = len(inputs.key)
        if self.method.position_scale == "one" or inputs.layer < FIRST_SCALED_LAYER:
            return self.positions.new_ones(num_kv_heads)
        rope = self.rotations[inputs.layer].rope
        query, keys = (rope.to_pairs(part.to(self.positions)) for part in (inputs.query[:, -1:], inputs.key))
        query, keys = from_pairs(rope.unscaled(query)), from_pairs(keys)
        weights = attention_weights(query, keys, inputs.scoring, None)
        stands_out = weights > OUTLIER_FACTOR * weights.mean(-1, keepdim=True)
        counts, own = gather_heads(stands_out.view(num_kv_heads, -1).sum(-1), self.num_processes)
        # Head h gets the ratio whose index is entry h of the sorted heads, as in the released code. By the
        # paper, the index is the rank of head h, which is the inverse.
        steps = counts.argsort(descending=True, stable=True).to(self.positions)
        return MIN_RATIO + (MAX_RATIO - MIN_RATIO) * (steps / len(steps))[own]
