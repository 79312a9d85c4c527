"""Causal attention with rotation by the model: vanilla, and the suffix of other methods."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor

from pine_engine.attention.arithmetic import causal_tail
from pine_engine.attention.kv_cache import LayerCache, new_layer
from pine_engine.attention.recorder import StoredKeys
from pine_engine.attention.strategy import DecodeStrategy, KeysValues, PromptState, Strategy, exact_kernels
from pine_engine.network.registration import AdaptiveWeighting, CalibratedWeighting, LayerInput
from pine_engine.prompts.layout import TokenLayout


class CausalAttention(Strategy):
    """Every token attends to all tokens stored before it, in the order of `key_index`, (num_tokens,), CPU."""

    def __init__(self, state: PromptState, device: torch.device, key_index: Tensor | None = None) -> None:
        layout, method, bias = state.plan.layout, state.plan.method, _key_bias(state)
        index = torch.arange(state.num_tokens) if key_index is None else key_index
        stored_bias = None if bias is None else bias[index]
        on_device = None if stored_bias is None else stored_bias.to(device)
        self.kernels = exact_kernels(state, device)
        self.stored = StoredKeys(state.plan, index.to(device), on_device)
        self.adaptive = (
            AdaptiveWeighting(layout.prefix_length, layout.documents_end, method.temperature, method.scale)
            if method.key_weighting == "adaptive"
            else None
        )
        self.calibrated, self.first_calibrated_layer = None, 0
        if method.key_weighting == "calibrated" and state.log_weights:
            bounds = (*layout.document_starts.tolist(), layout.documents_end)
            self.calibrated = CalibratedWeighting(bounds, state.log_weights)
            num_layers = len(state.patched_model.ropes)
            self.first_calibrated_layer = num_layers - num_layers // 2
        weights = None if stored_bias is None else tuple(stored_bias[: layout.documents_end].tolist())
        self.batch_key = "causal", self.kernels, self.adaptive, self.calibrated, weights
        self.recorder = state.recorder

    def prefill(self, inputs: LayerInput, prefix: KeysValues | None) -> tuple[Tensor, LayerCache]:
        """See Strategy."""
        cache = new_layer(inputs.key, len(self.stored.index))
        if prefix:
            cache.append(*prefix)
        return extend_in_parts(self, inputs, cache, self.stored.plan.layout), cache

    def extend(
        self, inputs: LayerInput, cache: LayerCache, members: Sequence["CausalAttention | None"] = ()
    ) -> Tensor:
        """See DecodeStrategy."""
        first = cache.length
        if self.adaptive:
            inputs = replace(inputs, scoring=replace(inputs.scoring, adaptive=self.adaptive))
        is_suffix = first >= self.stored.plan.layout.documents_end
        if self.calibrated and is_suffix and inputs.layer >= self.first_calibrated_layer:
            inputs = replace(inputs, scoring=replace(inputs.scoring, calibrated=self.calibrated))
        cache.append(inputs.key, inputs.value)
        keys, values = cache.keys[:, : cache.length], cache.values[:, : cache.length]
        members = members or (self,)
        for index, member in enumerate(members):
            if member and member.recorder:
                place = index, len(members)
                member.recorder.record_continuation(inputs, first, keys, member.stored, place)
        bias = None if self.stored.bias is None else self.stored.bias[: cache.length]
        return causal_tail(inputs.query, keys, values, inputs.scoring, bias, kernels=self.kernels)


def extend_in_parts(
    strategy: DecodeStrategy, inputs: LayerInput, cache: LayerCache, layout: TokenLayout
) -> Tensor:
    """Extend by prefix, documents and suffix one after the other, so that their reuse changes no bit."""
    first = cache.length
    bounds = first, layout.prefix_length, layout.documents_end, layout.num_tokens
    parts = (inputs.tokens(start - first, end - first) for start, end in pairwise(bounds))
    return torch.cat([strategy.extend(part, cache) for part in parts], dim=1)


def _key_bias(state: PromptState) -> Tensor | None:
    """Return the logarithm of the constant weight of each key, (num_tokens,); None if all weights are 1."""
    weighting, layout = state.plan.method.key_weighting, state.plan.layout
    bias = torch.zeros(state.num_tokens, dtype=state.compute_dtype)
    if weighting == "saliency" and state.log_weights is not None:
        of_documents = bias.new_tensor(state.log_weights)
        of_tokens = of_documents.repeat_interleave(torch.from_numpy(layout.lengths))
        bias[layout.prefix_length : layout.documents_end] = of_tokens
        return bias
    if not weighting.startswith("documents"):
        return None
    first = 0 if weighting == "documents_and_prefix" else layout.prefix_length
    bias[first : layout.documents_end] = -math.log(layout.num_documents)
    return bias
