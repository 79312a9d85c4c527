"""What prefill keeps for decode: keys and values of one prompt under one method."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

import torch
from torch import Tensor


@dataclass(frozen=True)
class DocumentBlocks:
    """One layer's documents where every query places them on its own, in block order.

    keys: (G, documents, length, d) per length class, rotated by their offset. values: (G, P, d), by slot.
    unrotated_keys: (G, P, d), needed to rank. All float32, since importance and attention to documents are
        float32 in every model dtype.
    """

    keys: list[Tensor]
    values: Tensor
    unrotated_keys: Tensor

    @property
    def num_bytes(self) -> int:
        """Memory of all parts."""
        return sum(part.nbytes for part in (*self.keys, self.values, self.unrotated_keys))

    def of_heads(self, heads: slice) -> "DocumentBlocks":
        """Views of these heads alone."""
        return DocumentBlocks(
            [keys[heads] for keys in self.keys], self.values[heads], self.unrotated_keys[heads]
        )


NO_DOCUMENTS = DocumentBlocks([], torch.empty(0), torch.empty(0))
"""Of a layer whose rows hold the documents too."""


@dataclass
class LayerCache:
    """One layer: rotated keys and values (G, capacity, d), of which `length` rows are filled.

    With documents in blocks, the rows are prefix and suffix only; else the whole prompt, as it is stored.
    """

    keys: Tensor
    values: Tensor
    blocks: DocumentBlocks
    length: int = 0

    def append(self, keys: Tensor, values: Tensor) -> None:
        """Adds rows (G, n, d)."""
        end = self.length + keys.shape[1]
        self.keys[:, self.length : end] = keys
        self.values[:, self.length : end] = values
        self.length = end


@dataclass
class KVCache:
    """All layers of one prompt; prefill appends one after the other.

    stack: what holds these layers beside those of others, None where they are alone.
    """

    layers: list[LayerCache]
    stack: Optional["BatchedKVCache"] = None

    @property
    def length(self) -> int:
        """Rows filled in each layer, in tokens."""
        return self.layers[0].length

    @property
    def num_bytes(self) -> int:
        """Memory of all layers, with the room that is not filled yet."""
        return sum(layer.keys.nbytes + layer.values.nbytes + layer.blocks.num_bytes for layer in self.layers)

    def copy(self) -> "KVCache":
        """Another cache with the same rows and as much room, for another continuation; blocks are shared."""
        layers = []
        for layer in self.layers:
            other = empty_like(layer, layer.keys.shape[1])
            other.append(layer.keys[:, : layer.length], layer.values[:, : layer.length])
            layers.append(other)
        return KVCache(layers)

    def truncate(self, length: int) -> None:
        """Forgets the rows behind `length`, so that another continuation can follow the prompt."""
        for layer in self.layers:
            layer.length = length


@dataclass(frozen=True, eq=False)
class BatchedKVCache:
    """Caches of one shape and length, the heads of one beside those of the next: (all of them * G, ...).

    Attention reads each head on its own, so one call over all heads does what a call for each cache would.
    layers: of which the layers of `caches` are views from now on. Their lengths stay their own.
    """

    caches: tuple[KVCache, ...]
    layers: list[LayerCache]

    @classmethod
    def of(cls, caches: Sequence[KVCache]) -> "BatchedKVCache":
        """Moves the caches into one."""
        stack = cls(tuple(caches), [])
        for layers in zip(*(cache.layers for cache in caches), strict=True):
            blocks = DocumentBlocks(
                [torch.cat(keys) for keys in zip(*(layer.blocks.keys for layer in layers), strict=True)],
                torch.cat([layer.blocks.values for layer in layers]),
                torch.cat([layer.blocks.unrotated_keys for layer in layers]),
            )
            keys, values = (
                torch.cat([getattr(layer, name) for layer in layers]) for name in ("keys", "values")
            )
            stack.layers.append(LayerCache(keys, values, blocks))
            for number, layer in enumerate(layers):
                heads = heads_of(number, len(layer.keys))
                layer.keys, layer.values, layer.blocks = keys[heads], values[heads], blocks.of_heads(heads)
        for cache in caches:
            cache.stack = stack
        return stack


def heads_of(number: int, count: int) -> slice:
    """Where the heads of one of several stand that have so many each."""
    return slice(number * count, (number + 1) * count)


def new_layer(
    like: Tensor,
    capacity: int,
    *,
    dtype: torch.dtype | None = None,
    blocks: DocumentBlocks = NO_DOCUMENTS,
) -> LayerCache:
    """A layer without rows yet, with room for `capacity`.

    like: keys (G, n, d), of whose heads, head dimension and device it is. dtype: theirs if None.
    """
    keys = like.new_empty(like.shape[0], capacity, like.shape[-1], dtype=dtype)
    return LayerCache(keys, torch.empty_like(keys), blocks)


def empty_like(layer: LayerCache, capacity: int) -> LayerCache:
    """Another layer of the same shape and documents, without rows yet, with room for `capacity`."""
    return new_layer(layer.keys, capacity, blocks=layer.blocks)
