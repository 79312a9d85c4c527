"""Prefill: one forward pass over prefix, documents and suffix."""

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional

from pine_engine.attention.state import SequenceState, strategy_on
from pine_engine.network.registration import Attend, AttentionParams, LayerInput
from pine_engine.network.thread_tuner import torch_num_threads


def prefill_attention(
    sequence: SequenceState,
    on_layer: Callable[[int], None],
    prefix_of: SequenceState | None = None,
    threads: int | None = None,
) -> Attend:
    """Return the attention for the prefill of one prompt under one method; it fills the cache of `sequence`.

    With `prefix_of`, a prefilled sequence with the same prefix, the pass begins with the documents.
    """
    layout = sequence.state.plan.layout
    count = layout.num_tokens - (layout.prefix_length if prefix_of else 0)

    def attend(layer: int, query: Tensor, key: Tensor, value: Tensor, scoring: AttentionParams) -> Tensor:
        """Return the attention output of one layer, zero for padding; the batch size is 1."""
        on_layer(layer)
        strategy, prefix = strategy_on(sequence.state, query.device), None
        if prefix_of:
            source = strategy_on(prefix_of.state, query.device)
            prefix = source.prefix(layer, prefix_of.cache.layers[layer], layout.prefix_length)
        inputs = LayerInput(layer, query[0], key[0], value[0], scoring).tokens(0, count)
        with torch_num_threads(threads):
            output, cache = strategy.prefill(inputs, prefix)
        sequence.cache.layers.append(cache)
        return functional.pad(output, (0, 0, 0, query.shape[2] - count))[None]

    return attend
