"""Attention of both forward passes: prefill of a prompt, and decode of tokens that follow it."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from pine_engine.attention.kv_cache import BatchedKVCache, LayerCache
from pine_engine.attention.state import SequenceState, strategy_on
from pine_engine.network.batched_gemm import decode_attention_threads
from pine_engine.network.layer_progress import LAYER_PROGRESS, LayerProgress
from pine_engine.network.registration import Attend, AttentionParams, LayerInput
from pine_engine.network.thread_tuner import OnLayer, torch_num_threads


def prefill_attention(
    sequences: Sequence[SequenceState],
    on_layer: OnLayer,
    prefixes_of: Sequence[SequenceState] = (),
    threads: int | None = None,
) -> Attend:
    """Return the attention for the prefill of prompts under one method; it fills their caches.

    The prompts have the same length and prefix. With `prefixes_of`, for each a prefilled sequence with its
    prefix, the pass begins with the documents.
    """
    layout = sequences[0].state.plan.layout
    count = layout.num_tokens - (layout.prefix_length if prefixes_of else 0)
    num_pairs = sum(sequence.state.plan.num_pairs for sequence in sequences)

    def attend(layer: int, query: Tensor, key: Tensor, value: Tensor, scoring: AttentionParams) -> Tensor:
        """Return the attention output of one layer, zero for padding."""
        on_layer(layer)
        flop = 4 * query.shape[1] * query.shape[3] * num_pairs
        LAYER_PROGRESS.set(LayerProgress(on_layer, layer, flop))
        outputs = []
        for place, sequence in enumerate(sequences):
            strategy, prefix = strategy_on(sequence.state, query.device), None
            if prefixes_of:
                prefix_of = prefixes_of[place]
                source = strategy_on(prefix_of.state, query.device)
                prefix = source.prefix(layer, prefix_of.cache.layers[layer], layout.prefix_length)
            own = [part[place] for part in (query, key, value)]
            if len(sequences) > 1:  # aligned to cache lines, as those of a prompt that is alone
                own = [part.clone() for part in own]
            inputs = LayerInput(layer, own[0], own[1], own[2], scoring).tokens(0, count)
            with torch_num_threads(threads):
                output, cache = strategy.prefill(inputs, prefix)
            sequence.cache.layers.append(cache)
            outputs.append(output)
        return functional.pad(torch.stack(outputs), (0, 0, 0, query.shape[2] - count))

    return attend


def batch_caches(sequences: Sequence[SequenceState]) -> None:
    """Batch the KV caches of sequences whose attention can be computed in one call.

    The time of a decode step depends on the number of small operations, and a batch needs no more of them
    than one sequence. Caches that are in a batch already stay there.
    """
    groups: dict[Hashable, list[SequenceState]] = {}
    for sequence in sequences:
        layers = sequence.cache.layers
        if sequence.cache.batch is None:
            shapes = tuple((one.keys.shape, one.keys.dtype, one.keys.device, one.length) for one in layers)
            devices = dict.fromkeys(layer.keys.device for layer in layers)
            keys = tuple(strategy_on(sequence.state, one).decode_strategy.batch_key for one in devices)
            groups.setdefault((id(sequence.state.patched_model), keys, shapes), []).append(sequence)
    for group in groups.values():
        if len(group) > 1:
            BatchedKVCache.of([sequence.cache for sequence in group])


@dataclass(frozen=True)
class SequenceGroup:
    """Sequences of a batch of caches whose attention is computed in one call, or a single sequence."""

    places: Sequence[int]  # index of each sequence in the batch of the model, in the order of the caches
    slots: Sequence[SequenceState | None]  # of all caches; None: finished, computes zeros into its part
    layers: list[LayerCache]  # of the batch of caches
    _strategies: dict[torch.device, list[Any]] = field(default_factory=dict)

    def extend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scoring: AttentionParams, output: Tensor
    ) -> None:
        """Write the attention of these sequences into `output`; shapes as in Attend."""
        query, key, value = (self._concatenate_heads(vectors) for vectors in (query, key, value))
        strategies = self._strategies_on(query.device)
        strategy = next(filter(None, strategies))
        cache = self.layers[layer]
        local_caches = [sequence.cache.layers[layer] for sequence in self.slots if sequence]
        cache.length = local_caches[0].length
        result = strategy.extend(LayerInput(layer, query, key, value, scoring), cache, strategies)
        places, numbers = self._indices
        output[places] = result.unflatten(0, (len(self.slots), -1))[numbers]
        for local_cache in local_caches:
            local_cache.length = cache.length

    def _strategies_on(self, device: torch.device) -> list[Any]:
        if device not in self._strategies:
            self._strategies[device] = [
                sequence and strategy_on(sequence.state, device).decode_strategy for sequence in self.slots
            ]
        return self._strategies[device]

    def _concatenate_heads(self, vectors: Tensor) -> Tensor:
        """Convert (B, heads, n, head_dim) to (len(slots) * heads, n, head_dim), zeros for finished ones."""
        places, numbers = self._indices
        active = vectors[places]
        if len(self.places) < len(self.slots):
            padded = active.new_zeros(len(self.slots), *active.shape[1:])
            padded[numbers] = active
            active = padded
        return active.flatten(0, 1)

    @cached_property
    def _indices(self) -> tuple[slice | Tensor, slice | Tensor]:
        """Indices of the sequences in the batch of the model and in the batch of caches."""
        numbers = [number for number, sequence in enumerate(self.slots) if sequence]
        return _as_index(self.places), _as_index(numbers)


def _as_index(places: Sequence[int]) -> slice | Tensor:
    """Return consecutive places as a slice, so that indexing does not copy."""
    consecutive = range(places[0], places[0] + len(places))
    if list(places) == list(consecutive):
        return slice(consecutive.start, consecutive.stop)
    return torch.tensor(places)


def decode_attention(
    sequences: Sequence[SequenceState | None], on_layer: OnLayer, threads: int | None = None
) -> Attend:
    """Return the attention for tokens that follow prefilled prompts; None and missing ones are finished."""
    groups = _group(sequences)

    def attend(layer: int, query: Tensor, key: Tensor, value: Tensor, scoring: AttentionParams) -> Tensor:
        """Return the attention output of one layer, zero for finished sequences."""
        on_layer(layer)
        output = torch.zeros_like(query)
        with torch_num_threads(threads or decode_attention_threads(query, key)):
            for group in groups:
                group.extend(layer, query, key, value, scoring, output)
        return output

    return attend


def _group(sequences: Sequence[SequenceState | None]) -> list[SequenceGroup]:
    """Return sequences of equal length in the same batch of caches, and single sequences.

    If another sequence of the batch of caches is longer, each is computed alone, because zeros would be
    written over the tokens of the longer one.
    """
    batched: dict[tuple[BatchedKVCache | None, int], list[tuple[int, SequenceState]]] = {}
    for place, sequence in enumerate(sequences):
        if sequence:
            key = sequence.cache.batch, sequence.cache.length
            batched.setdefault(key, []).append((place, sequence))
    groups: list[SequenceGroup] = []
    for (batch, length), members in batched.items():
        caches = batch.caches if batch else []
        if not batch or len(members) == 1 or any(cache and cache.length > length for cache in caches):
            groups += [SequenceGroup([place], [one], one.cache.layers) for place, one in members]
            continue
        by_cache = {id(one.cache): (place, one) for place, one in members}
        slots = [by_cache.get(id(cache)) for cache in caches]
        places = [slot[0] for slot in slots if slot]
        groups.append(SequenceGroup(places, [slot and slot[1] for slot in slots], batch.layers))
    return groups
