"""KV cache of one prompt under one method, and batches of caches."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

import torch
from torch import Tensor


@dataclass(frozen=True)
class DocumentBlocks:
    """Documents of one layer for queries that place them individually, in block order.

    All tensors are float32, because importance and attention to documents are float32 in every model dtype.

    Shape:
        keys: per length class (G, documents, length, head_dim), rotated by their offset in the document.
        values: (G, P, head_dim), by slot. unrotated_keys: (G, P, head_dim), for ranking.
    """

    keys: list[Tensor]
    values: Tensor
    unrotated_keys: Tensor

    @property
    def num_bytes(self) -> int:
        """Memory in bytes."""
        return sum(part.nbytes for part in (*self.keys, self.values, self.unrotated_keys))

    def of_heads(self, heads: slice) -> "DocumentBlocks":
        """Return views of some heads."""
        return DocumentBlocks(
            [keys[heads] for keys in self.keys], self.values[heads], self.unrotated_keys[heads]
        )


NO_DOCUMENTS = DocumentBlocks([], torch.empty(0), torch.empty(0))
"""Blocks of a layer that stores documents like other tokens."""


@dataclass
class LayerCache:
    """Rotated keys and values (G, capacity, head_dim) of one layer; the first `length` tokens are filled.

    With documents in blocks, these are the tokens of prefix and suffix; else those of the whole prompt.
    """

    keys: Tensor
    values: Tensor
    blocks: DocumentBlocks
    length: int = 0

    def append(self, keys: Tensor, values: Tensor) -> None:
        """Append tokens (G, n, head_dim)."""
        end = self.length + keys.shape[1]
        self.keys[:, self.length : end] = keys
        self.values[:, self.length : end] = values
        self.length = end


@dataclass
class KVCache:
    """KV cache of all layers; prefill appends one layer after the other.

    Attributes:
        layers: Cache of each layer.
        stack: Batch that contains these layers; None outside a batch.
    """

    layers: list[LayerCache]
    stack: Optional["BatchedKVCache"] = None

    @property
    def length(self) -> int:
        """Tokens filled in each layer."""
        return self.layers[0].length

    @property
    def num_bytes(self) -> int:
        """Memory of all layers in bytes, reserved tokens included."""
        return sum(layer.keys.nbytes + layer.values.nbytes + layer.blocks.num_bytes for layer in self.layers)

    def copy(self) -> "KVCache":
        """Return a copy of equal capacity for another continuation; it shares the blocks."""
        layers = []
        for layer in self.layers:
            copied = empty_like(layer, layer.keys.shape[1])
            copied.append(layer.keys[:, : layer.length], layer.values[:, : layer.length])
            layers.append(copied)
        return KVCache(layers)

    def truncate(self, length: int) -> None:
        """Remove all tokens after the first `length` ones."""
        for layer in self.layers:
            layer.length = length


@dataclass(frozen=True, eq=False)
class BatchedKVCache:
    """Batch of caches of equal shape and length, concatenated by heads: (batch size * G, ...).

    Attention treats each head on its own, so one call for all heads gives the same result as one call per
    cache. The layers of `caches` are views of `layers`; each cache keeps its own length.
    """

    caches: tuple[KVCache, ...]
    layers: list[LayerCache]

    @classmethod
    def of(cls, caches: Sequence[KVCache]) -> "BatchedKVCache":
        """Move caches into one batch."""
        stack = cls(tuple(caches), [])
        for layers in zip(*(cache.layers for cache in caches), strict=True):
            blocks = DocumentBlocks(
                [torch.cat(keys) for keys in zip(*(layer.blocks.keys for layer in layers), strict=True)],
                torch.cat([layer.blocks.values for layer in layers]),
                torch.cat([layer.blocks.unrotated_keys for layer in layers]),
            )
            keys = torch.cat([layer.keys for layer in layers])
            values = torch.cat([layer.values for layer in layers])
            stack.layers.append(LayerCache(keys, values, blocks))
            for index, layer in enumerate(layers):
                heads = heads_of(index, len(layer.keys))
                layer.keys, layer.values, layer.blocks = keys[heads], values[heads], blocks.of_heads(heads)
        for cache in caches:
            cache.stack = stack
        return stack


def heads_of(index: int, num_heads: int) -> slice:
    """Return the heads of one sequence of a batch, if each sequence has `num_heads`."""
    return slice(index * num_heads, (index + 1) * num_heads)


def new_layer(
    like: Tensor,
    capacity: int,
    *,
    dtype: torch.dtype | None = None,
    blocks: DocumentBlocks = NO_DOCUMENTS,
) -> LayerCache:
    """Return an empty layer for `capacity` tokens with heads, device and dtype of `like` (G, n, head_dim)."""
    keys = like.new_empty(like.shape[0], capacity, like.shape[-1], dtype=dtype)
    return LayerCache(keys, torch.empty_like(keys), blocks)


def empty_like(layer: LayerCache, capacity: int) -> LayerCache:
    """Return an empty layer for `capacity` tokens with the documents of another layer."""
    return new_layer(layer.keys, capacity, blocks=layer.blocks)
