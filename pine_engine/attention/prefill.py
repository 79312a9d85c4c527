"""Prefill: one forward pass over prefix, documents and suffix."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional

from pine_engine.attention.state import SequenceState, strategy_on
from pine_engine.network.registration import AttentionParams, LayerInput
from pine_engine.network.thread_tuner import torch_num_threads


@dataclass(frozen=True)
class PrefillPass:
    """Prefill of one prompt under one method; fills the cache of `sequence`.

    Attributes:
        sequence: State and empty cache of the prompt.
        on_layer: Called with the index of each layer when it begins.
        prefix_of: Prefilled sequence with the same prefix; the pass then begins with the documents.
        threads: Number of torch threads for attention; None keeps it.
    """

    sequence: SequenceState
    on_layer: Callable[[int], None]
    prefix_of: SequenceState | None = None
    threads: int | None = None

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scoring: AttentionParams
    ) -> Tensor:
        """Return the attention output of one layer, zero for padding; the batch size is 1."""
        self.on_layer(layer)
        layout, strategy = self.sequence.state.plan.layout, strategy_on(self.sequence.state, query.device)
        count, prefix = layout.num_tokens, None
        if self.prefix_of:
            count -= layout.prefix_length
            source = strategy_on(self.prefix_of.state, query.device)
            prefix = source.prefix(layer, self.prefix_of.cache.layers[layer], layout.prefix_length)
        inputs = LayerInput(layer, query[0], key[0], value[0], scoring).tokens(0, count)
        with torch_num_threads(self.threads):
            output, cache = strategy.prefill(inputs, prefix)
        self.sequence.cache.layers.append(cache)
        return functional.pad(output, (0, 0, 0, query.shape[2] - count))[None]
