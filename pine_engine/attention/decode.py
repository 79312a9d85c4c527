"""Tokens that follow what prompts have read: suffixes, decoded tokens, given answers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pine_engine.attention.state import Row
from pine_engine.attention.strategy import LayerInput
from pine_engine.network.registration import Scoring


@dataclass(frozen=True)
class ContinuationPass:
    """Tokens that follow prompts already read: one row per prompt, None for a row that has ended.

    The batch may have more rows than there are prompts; they count as ended.
    """

    rows: Sequence[Row | None]
    on_layer: Callable[[int], None]

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scoring: Scoring) -> Tensor:
        """See Pass."""
        self.on_layer(layer)
        output = torch.zeros_like(query)
        for index, row in enumerate(self.rows):
            if row is not None:
                given = LayerInput(layer, query[index], key[index], value[index], scoring)
                strategy = row.state.strategy(query.device)
                output[index] = strategy.extend(given, row.cache.layers[layer])
        return output
