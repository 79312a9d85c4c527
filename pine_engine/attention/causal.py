"""Causal attention with rotation by the model: vanilla, and the suffix of other methods."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from pine_engine.attention.arithmetic import causal_tail
from pine_engine.attention.kv_cache import LayerCache, new_layer
from pine_engine.attention.recorder import BatchMember, StoredKeys, TraceRecorder
from pine_engine.attention.strategy import KeysValues, Strategy, StrategyContext
from pine_engine.network.registration import LayerInput


@dataclass(frozen=True)
class CausalAttention(Strategy):
    """Every token attends to all tokens stored before it.

    `key_bias` (n + reserved_tokens,) is the logarithm of the weight of each key; None if all weights are 1.
    """

    stored: StoredKeys
    key_bias: Tensor | None
    batch_key: Hashable
    recorder: TraceRecorder | None

    @classmethod
    def of(cls, context: StrategyContext) -> Self:
        """Store all tokens in physical order."""
        return cls.over(context, torch.arange(context.length, device=context.device))

    @classmethod
    def over(cls, context: StrategyContext, index: Tensor) -> Self:
        """Store the tokens with these physical indices, (n + reserved_tokens,), in this order."""
        plan, layout, bias = context.plan, context.plan.layout, _key_bias(context)
        weighting = bias is not None and (
            plan.method.key_weighting,
            layout.prefix_length,
            layout.documents_end,
            layout.num_documents,
        )
        return cls(StoredKeys(plan, index), bias, ("causal", weighting), context.recorder)

    @property
    def decode_strategy(self) -> Self:
        """See Strategy."""
        return self

    def prefill(
        self, inputs: LayerInput, prefix: KeysValues | None, reserved_tokens: int
    ) -> tuple[Tensor, LayerCache]:
        """See Strategy."""
        cache = new_layer(inputs.key, self.stored.plan.layout.num_tokens + reserved_tokens)
        if prefix:
            cache.append(*prefix)
        return self.extend(inputs, cache), cache

    def extend(
        self, inputs: LayerInput, cache: LayerCache, members: Sequence["CausalAttention | None"] = ()
    ) -> Tensor:
        """See DecodeStrategy."""
        first = cache.length
        cache.append(inputs.key, inputs.value)
        keys, values = cache.keys[:, : cache.length], cache.values[:, : cache.length]
        bias = None if self.key_bias is None else self.key_bias[: cache.length]
        members = members or (self,)
        for index, member in enumerate(members):
            if member and member.recorder:
                member.recorder.record_continuation(
                    inputs, first, keys, member.stored, member.key_bias, BatchMember(index, len(members))
                )
        return causal_tail(inputs.query, keys, values, inputs.scoring, bias)


def _key_bias(context: StrategyContext) -> Tensor | None:
    weighting, layout = context.plan.method.key_weighting, context.plan.layout
    if weighting == "nothing":
        return None
    bias = torch.zeros(context.length, dtype=context.compute_dtype, device=context.device)
    first = 0 if weighting == "documents_and_prefix" else layout.prefix_length
    bias[first : layout.documents_end] = -math.log(layout.num_documents)
    return bias
