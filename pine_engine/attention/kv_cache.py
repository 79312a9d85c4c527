"""KV cache of one prompt under one method, and batches of caches."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Optional
from weakref import ref

import torch
from torch import Tensor


@dataclass(frozen=True)
class DocumentBlocks:
    """Documents of one layer for queries that place them individually, in block order and float32."""

    # Rotated by offset in the document: (G, documents, length, head_dim) by length class, for kernels of a
    # GPU one tensor (G, P, head_dim).
    keys: list[Tensor]
    values: Tensor  # (G, P, head_dim), by slot
    unrotated_keys: Tensor  # (G, P, head_dim), for ranking

    def tensors(self) -> list[Tensor]:
        """Return all tensors, as `of_tensors` expects them."""
        return [*self.keys, self.values, self.unrotated_keys]

    @classmethod
    def of_tensors(cls, tensors: Sequence[Tensor]) -> "DocumentBlocks":
        """Return the blocks with these tensors."""
        return cls(list(tensors[:-2]), *tensors[-2:])


NO_DOCUMENTS = DocumentBlocks([], torch.empty(0), torch.empty(0))
"""Blocks of a layer that stores documents like other tokens."""

NO_RATIOS = torch.empty(0)
"""Ratios of a layer whose positions are not divided by PINE."""


@dataclass
class LayerCache:
    """Rotated keys and values (G, capacity, head_dim) of one layer; the first `length` tokens are filled.

    With documents in blocks, these are the tokens of prefix and suffix; else those of the whole prompt.
    `ratios` (G,) divide the positions of each head; they are chosen at prefill.
    """

    keys: Tensor
    values: Tensor
    blocks: DocumentBlocks
    length: int = 0
    ratios: Tensor = NO_RATIOS

    def append(self, keys: Tensor, values: Tensor) -> None:
        """Append tokens (G, n, head_dim)."""
        end = self.length + keys.shape[1]
        self.keys[:, self.length : end] = keys
        self.values[:, self.length : end] = values
        self.length = end


@dataclass
class KVCache:
    """KV cache of all layers, to which prefill appends, and the batch that contains it, if any."""

    layers: list[LayerCache]
    batch: Optional["BatchedKVCache"] = None

    @property
    def length(self) -> int:
        """Tokens filled in each layer."""
        return self.layers[0].length

    @property
    def num_bytes(self) -> int:
        """Memory of all layers in bytes, reserved tokens included."""
        return sum(
            part.nbytes
            for layer in self.layers
            for part in (layer.keys, layer.values, *layer.blocks.tensors())
        )

    def copy(self, num_free_tokens: int | None = None) -> "KVCache":
        """Return a copy that shares the blocks, of equal capacity or with space for some more tokens."""
        layers = []
        for layer in self.layers:
            capacity = layer.keys.shape[1] if num_free_tokens is None else layer.length + num_free_tokens
            copied = empty_like(layer, capacity)
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

    references: Sequence[ref[KVCache]]  # weak, because a cycle would stay in memory until garbage collection
    layers: list[LayerCache]

    @property
    def caches(self) -> list[KVCache | None]:
        """Caches in the order of the batch; None for one that is no longer used."""
        return [reference() for reference in self.references]

    @classmethod
    def of(cls, caches: Sequence[KVCache]) -> "BatchedKVCache":
        """Move caches into one batch."""
        batch = cls(list(map(ref, caches)), [])
        for layers in zip(*(cache.layers for cache in caches), strict=True):
            rows = ([one.keys, one.values, one.ratios, *one.blocks.tensors()] for one in layers)
            keys, values, ratios, *blocks = map(torch.cat, zip(*rows, strict=True))
            stored = DocumentBlocks.of_tensors(blocks)
            batch.layers.append(LayerCache(keys, values, stored, ratios=ratios))
            for index, layer in enumerate(layers):
                layer.keys, layer.values, *own_blocks = (
                    heads_of(part, index, len(caches)) for part in (keys, values, *blocks)
                )
                layer.blocks = DocumentBlocks.of_tensors(own_blocks)
        for cache in caches:
            cache.batch = batch
        return batch


def heads_of(vectors: Tensor, index: int, batch_size: int) -> Tensor:
    """Return the heads of one sequence, a view of (batch_size * heads, ...)."""
    num_heads = vectors.shape[0] // batch_size
    return vectors[index * num_heads : (index + 1) * num_heads]


def new_layer(
    like: Tensor, capacity: int, *, dtype: torch.dtype | None = None, blocks: DocumentBlocks = NO_DOCUMENTS
) -> LayerCache:
    """Return an empty layer for `capacity` tokens with heads, device and dtype of `like` (G, n, head_dim)."""
    keys = like.new_empty(like.shape[0], capacity, like.shape[-1], dtype=dtype)
    return LayerCache(keys, torch.empty_like(keys), blocks)


def empty_like(layer: LayerCache, capacity: int) -> LayerCache:
    """Return an empty layer for `capacity` tokens with the documents and ratios of another layer."""
    return replace(new_layer(layer.keys, capacity, blocks=layer.blocks), ratios=layer.ratios)
