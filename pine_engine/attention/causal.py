"""Everything is causal and the model rotates: vanilla, and what follows the documents of other methods."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from pine_engine.attention.arithmetic import causal_tail
from pine_engine.attention.kv_cache import LayerCache, new_layer
from pine_engine.attention.recorder import StoredKeys, TraceRecorder
from pine_engine.attention.strategy import KeysValues, LayerInput, Strategy, StrategyContext


@dataclass(frozen=True)
class CausalAttention(Strategy):
    """Every token reads all tokens that are stored before it.

    key_bias: (n + room,), logarithm of every key's weight; None if all weigh the same. alike: see
    DecodeStrategy.
    """

    stored: StoredKeys
    key_bias: Tensor | None
    alike: Hashable
    recorder: TraceRecorder | None

    @classmethod
    def of(cls, reading: StrategyContext) -> Self:
        """All tokens stored in physical order."""
        return cls.over(reading, torch.arange(reading.length, device=reading.device))

    @classmethod
    def over(cls, reading: StrategyContext, index: Tensor) -> Self:
        """index: physical index of each key in the order in which it is stored, (n + room,)."""
        plan, layout, bias = reading.plan, reading.plan.layout, _key_bias(reading)
        weighting = bias is not None and (
            plan.method.key_weighting,
            layout.prefix_length,
            layout.documents_end,
            layout.num_documents,
        )
        return cls(StoredKeys(plan, index), bias, ("causal", weighting), reading.recorder)

    @property
    def continuing(self) -> Self:
        """See Strategy."""
        return self

    def prefill(self, given: LayerInput, prefix: KeysValues | None, room: int) -> tuple[Tensor, LayerCache]:
        """See Strategy."""
        cache = new_layer(given.key, self.stored.plan.layout.num_tokens + room)
        if prefix:
            cache.append(*prefix)
        return self.extend(given, cache), cache

    def extend(
        self, given: LayerInput, cache: LayerCache, rows: Sequence["CausalAttention | None"] = ()
    ) -> Tensor:
        """See DecodeStrategy."""
        first = cache.length
        cache.append(given.key, given.value)
        keys, values = cache.keys[:, : cache.length], cache.values[:, : cache.length]
        bias = None if self.key_bias is None else self.key_bias[: cache.length]
        rows = rows or (self,)
        for number, row in enumerate(rows):
            if row and row.recorder:
                row.recorder.record_continuation(
                    given.layer,
                    first,
                    given.query,
                    keys,
                    given.scoring,
                    stored=row.stored,
                    bias=row.key_bias,
                    part=(number, len(rows)),
                )
        return causal_tail(given.query, keys, values, given.scoring, bias)


def _key_bias(reading: StrategyContext) -> Tensor | None:
    weighting, layout = reading.plan.method.key_weighting, reading.plan.layout
    if weighting == "nothing":
        return None
    bias = torch.zeros(reading.length, dtype=reading.compute_dtype, device=reading.device)
    first = 0 if weighting == "documents_and_prefix" else layout.prefix_length
    bias[first : layout.documents_end] = -math.log(layout.num_documents)
    return bias
