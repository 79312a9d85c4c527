"""What prefill keeps for decode: keys and values of one prompt under one method."""

from dataclasses import dataclass

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


@dataclass(frozen=True)
class KVCache:
    """All layers of one prompt; prefill appends one after the other."""

    layers: list[LayerCache]

    @property
    def length(self) -> int:
        """Rows filled in each layer, in tokens."""
        return self.layers[0].length

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
