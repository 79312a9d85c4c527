"""A whole prompt in one pass: the prefix, the documents as the method has them see each other, the suffix."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional

from pine_engine.attention.state import SequenceState
from pine_engine.attention.strategy import LayerInput
from pine_engine.network.registration import AttentionParams
from pine_engine.network.threads import torch_num_threads


@dataclass(frozen=True)
class PrefillPass:
    """A whole prompt under one method; fills the row's cache.

    prefix_of: a row that has read the same prefix, whose keys and values are used again: the pass then
    begins with the documents. threads: of torch, with which attention is computed; None for as many as there
    are. Rows of the batch behind the prompt are padding and get zeros.
    """

    row: SequenceState
    room: int
    on_layer: Callable[[int], None]
    prefix_of: SequenceState | None = None
    threads: int | None = None

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scoring: AttentionParams
    ) -> Tensor:
        """See Pass; the batch has one row."""
        self.on_layer(layer)
        layout, strategy = self.row.state.plan.layout, self.row.state.strategy(query.device)
        count, prefix = layout.num_tokens, None
        if self.prefix_of:
            count -= layout.prefix_length
            theirs = self.prefix_of.state.strategy(query.device)
            prefix = theirs.prefix(layer, self.prefix_of.cache.layers[layer], layout.prefix_length)
        given = LayerInput(layer, query[0], key[0], value[0], scoring).rows(0, count)
        with torch_num_threads(self.threads):
            output, cache = strategy.prefill(given, prefix, self.room)
        self.row.cache.layers.append(cache)
        return functional.pad(output, (0, 0, 0, query.shape[2] - count))[None]
