"""Tokens that follow what prompts have read: suffixes, decoded tokens, given answers."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from pine_engine.attention.kv_cache import BatchedKVCache, LayerCache
from pine_engine.attention.state import SequenceState
from pine_engine.attention.strategy import LayerInput
from pine_engine.network.batch_invariant_ops import decode_attention_threads
from pine_engine.network.registration import AttentionParams
from pine_engine.network.threads import torch_num_threads

Index = slice | Tensor


def batch_caches(rows: Sequence[SequenceState]) -> None:
    """Stacks the caches of rows that can be extended as one; what is stacked already stays as it is.

    A decoding step takes as long as its small operations are many, and rows together need no more of them
    than one.
    """
    alike: dict[Hashable, list[SequenceState]] = {}
    for row in rows:
        if row.cache.stack is None:
            shapes = tuple(_shape(layer) for layer in row.cache.layers)
            devices = dict.fromkeys(layer.keys.device for layer in row.cache.layers)
            kinds = tuple(row.state.strategy(device).continuing.alike for device in devices)
            alike.setdefault((id(row.state.patched_model), kinds, shapes), []).append(row)
    for group in alike.values():
        if len(group) > 1:
            BatchedKVCache.of([row.cache for row in group])


def _shape(layer: LayerCache) -> Hashable:
    return layer.keys.shape, layer.keys.dtype, layer.keys.device, layer.length


@dataclass(frozen=True)
class SequenceGroup:
    """Rows that are extended as one, or a single one.

    places: of them in the batch. numbers: of them among all whose heads `layers` hold. slots: these, None for
    one that has ended: it computes zeros into room of its own.
    """

    rows: tuple[SequenceState, ...]
    places: Index
    numbers: Index
    slots: tuple[SequenceState | None, ...]
    layers: list[LayerCache]

    @classmethod
    def of_stack(
        cls, stack: BatchedKVCache, members: Sequence[tuple[int, SequenceState]]
    ) -> "list[SequenceGroup]":
        """Rows of a stack that have read as much, with their places in the batch.

        Each on its own where another of the stack has read more, since zeros would be written over that.
        """
        by_cache = {id(row.cache): (place, row) for place, row in members}
        found = [by_cache.get(id(cache)) for cache in stack.caches]
        length = members[0][1].cache.length
        if len(members) == 1 or any(cache.length > length for cache in stack.caches):
            return [cls.alone(place, row) for place, row in members]
        here = [(number, *one) for number, one in enumerate(found) if one]
        numbers, places, rows = zip(*here, strict=True)
        slots = tuple(one and one[1] for one in found)
        return [cls(rows, _index(places), _index(numbers), slots, stack.layers)]

    @classmethod
    def alone(cls, place: int, row: SequenceState) -> "SequenceGroup":
        """One row."""
        return cls((row,), _index([place]), slice(0, 1), (row,), row.cache.layers)

    def extend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scoring: AttentionParams, output: Tensor
    ) -> None:
        """Writes the attention of these rows into output (B, H, n, d); the rest as in Pass.attend."""
        query, key, value = (self._beside(vectors) for vectors in (query, key, value))
        strategies: list[Any] = [row and row.state.strategy(query.device).continuing for row in self.slots]
        continuing = next(filter(None, strategies))
        cache = self.layers[layer]
        own = [row.cache.layers[layer] for row in self.rows]
        cache.length = own[0].length
        attended = continuing.extend(LayerInput(layer, query, key, value, scoring), cache, strategies)
        output[self.places] = attended.unflatten(0, (len(self.slots), -1))[self.numbers]
        for one in own:
            one.length = cache.length

    def _beside(self, vectors: Tensor) -> Tensor:
        """(B, heads, n, d) with the heads of each row beside those of the next: (slots * heads, n, d)."""
        here = vectors[self.places]
        if len(self.rows) < len(self.slots):
            wide = here.new_zeros(len(self.slots), *here.shape[1:])
            wide[self.numbers] = here
            here = wide
        return here.flatten(0, 1)


def _index(places: Sequence[int]) -> Index:
    """Several places, as a slice where they follow each other: what it takes is then not copied."""
    first, count = places[0], len(places)
    if list(places) == list(range(first, first + count)):
        return slice(first, first + count)
    return torch.tensor(places)


@dataclass(frozen=True)
class DecodePass:
    """Tokens that follow prompts already read: one row per prompt, None for a row that has ended.

    The batch may have more rows than there are prompts; they count as ended.
    """

    rows: Sequence[SequenceState | None]
    on_layer: Callable[[int], None]

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scoring: AttentionParams
    ) -> Tensor:
        """See Pass."""
        self.on_layer(layer)
        output = torch.zeros_like(query)
        with torch_num_threads(decode_attention_threads(query, key)):
            for together in self._parts:
                together.extend(layer, query, key, value, scoring, output)
        return output

    @cached_property
    def _parts(self) -> list[SequenceGroup]:
        """Rows of one stack that have read as much are extended as one."""
        parts: list[SequenceGroup] = []
        stacked: dict[tuple[BatchedKVCache, int], list[tuple[int, SequenceState]]] = {}
        for place, row in enumerate(self.rows):
            if row and row.cache.stack:
                stacked.setdefault((row.cache.stack, row.cache.length), []).append((place, row))
            elif row:
                parts.append(SequenceGroup.alone(place, row))
        for (stack, _), members in stacked.items():
            parts += SequenceGroup.of_stack(stack, members)
        return parts
