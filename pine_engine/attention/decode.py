"""Decode: forward passes over tokens that follow a prompt (suffixes, decoded tokens, candidate answers)."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from pine_engine.attention.kv_cache import BatchedKVCache, LayerCache
from pine_engine.attention.state import SequenceState
from pine_engine.network.batch_invariant_ops import decode_attention_threads
from pine_engine.network.registration import AttentionParams, LayerInput
from pine_engine.network.thread_tuner import torch_num_threads

Index = slice | Tensor


def batch_caches(sequences: Sequence[SequenceState]) -> None:
    """Batch the KV caches of sequences whose attention can be computed in one call.

    The time of a decode step depends on the number of small operations, and a batch needs no more of them
    than one sequence. Caches that are in a batch already stay there.
    """
    groups: dict[Hashable, list[SequenceState]] = {}
    for sequence in sequences:
        if sequence.cache.stack is None:
            shapes = tuple(_shape(layer) for layer in sequence.cache.layers)
            devices = dict.fromkeys(layer.keys.device for layer in sequence.cache.layers)
            keys = tuple(sequence.state.strategy(device).decode_strategy.batch_key for device in devices)
            groups.setdefault((id(sequence.state.patched_model), keys, shapes), []).append(sequence)
    for group in groups.values():
        if len(group) > 1:
            BatchedKVCache.of([sequence.cache for sequence in group])


def _shape(layer: LayerCache) -> Hashable:
    return layer.keys.shape, layer.keys.dtype, layer.keys.device, layer.length


@dataclass(frozen=True)
class SequenceGroup:
    """Sequences whose attention is computed in one call, or a single sequence.

    Attributes:
        rows: The sequences.
        places: Their indices in the batch of the model.
        numbers: Their indices in the batch of caches.
        slots: All sequences of the batch of caches. None for a finished one, which computes zeros into its
            own part.
        layers: Layers of the batch of caches.
    """

    sequences: tuple[SequenceState, ...]
    places: Index
    numbers: Index
    slots: tuple[SequenceState | None, ...]
    layers: list[LayerCache]

    @classmethod
    def of_stack(
        cls, stack: BatchedKVCache, members: Sequence[tuple[int, SequenceState]]
    ) -> "list[SequenceGroup]":
        """Group sequences of equal length of a batch of caches, with their indices in the batch of the model.

        If another sequence of the batch of caches is longer, each is computed alone, because zeros would be
        written over the tokens of the longer one.
        """
        by_cache = {id(sequence.cache): (place, sequence) for place, sequence in members}
        found = [by_cache.get(id(cache)) for cache in stack.caches]
        length = members[0][1].cache.length
        if len(members) == 1 or any(cache.length > length for cache in stack.caches):
            return [cls.alone(place, sequence) for place, sequence in members]
        active = [(number, *member) for number, member in enumerate(found) if member]
        numbers, places, sequences = zip(*active, strict=True)
        slots = tuple(member and member[1] for member in found)
        return [cls(sequences, _index(places), _index(numbers), slots, stack.layers)]

    @classmethod
    def alone(cls, place: int, sequence: SequenceState) -> "SequenceGroup":
        """Return a single sequence."""
        return cls((sequence,), _index([place]), slice(0, 1), (sequence,), sequence.cache.layers)

    def extend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scoring: AttentionParams, output: Tensor
    ) -> None:
        """Write the attention of these sequences into `output`; shapes as in ForwardPass."""
        query, key, value = (self._concatenate_heads(vectors) for vectors in (query, key, value))
        strategies: list[Any] = [
            sequence and sequence.state.strategy(query.device).decode_strategy for sequence in self.slots
        ]
        strategy = next(filter(None, strategies))
        cache = self.layers[layer]
        local_caches = [sequence.cache.layers[layer] for sequence in self.sequences]
        cache.length = local_caches[0].length
        result = strategy.extend(LayerInput(layer, query, key, value, scoring), cache, strategies)
        output[self.places] = result.unflatten(0, (len(self.slots), -1))[self.numbers]
        for local_cache in local_caches:
            local_cache.length = cache.length

    def _concatenate_heads(self, vectors: Tensor) -> Tensor:
        """Convert (B, heads, n, head_dim) to (len(slots) * heads, n, head_dim), zeros for finished ones."""
        active = vectors[self.places]
        if len(self.sequences) < len(self.slots):
            padded = active.new_zeros(len(self.slots), *active.shape[1:])
            padded[self.numbers] = active
            active = padded
        return active.flatten(0, 1)


def _index(places: Sequence[int]) -> Index:
    """Return consecutive places as a slice, so that indexing does not copy."""
    first, count = places[0], len(places)
    if list(places) == list(range(first, first + count)):
        return slice(first, first + count)
    return torch.tensor(places)


@dataclass(frozen=True)
class DecodePass:
    """Forward pass over tokens that follow prefilled prompts.

    Attributes:
        rows: One sequence per element of the batch; None for a finished one. Missing ones count as finished.
        on_layer: Called with the index of each layer when it begins.
    """

    sequences: Sequence[SequenceState | None]
    on_layer: Callable[[int], None]

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scoring: AttentionParams
    ) -> Tensor:
        """Return the attention output of one layer, zero for finished sequences."""
        self.on_layer(layer)
        output = torch.zeros_like(query)
        with torch_num_threads(decode_attention_threads(query, key)):
            for group in self._groups:
                group.extend(layer, query, key, value, scoring, output)
        return output

    @cached_property
    def _groups(self) -> list[SequenceGroup]:
        """Sequences of equal length in the same batch of caches, and single sequences."""
        groups: list[SequenceGroup] = []
        stacked: dict[tuple[BatchedKVCache, int], list[tuple[int, SequenceState]]] = {}
        for place, sequence in enumerate(self.sequences):
            if sequence and sequence.cache.stack:
                stacked.setdefault((sequence.cache.stack, sequence.cache.length), []).append(
                    (place, sequence)
                )
            elif sequence:
                groups.append(SequenceGroup.alone(place, sequence))
        for (stack, _), members in stacked.items():
            groups += SequenceGroup.of_stack(stack, members)
        return groups
