"""What a strategy is: how one layer attends to one prompt, from its first token to the last of its answer.

There are few, chosen from the columns of the plan (`state.py`), each whole in a file of its own: `causal.py`,
`isolated.py`, `placed.py` and `ranked.py`.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import PreTrainedModel

from pine_engine.attention.kv_cache import LayerCache
from pine_engine.attention.recorder import TraceRecorder
from pine_engine.errors import ModelError
from pine_engine.methods.plan import AttentionPlan
from pine_engine.network.model_patching import PatchedModel
from pine_engine.network.registration import AttentionParams
from pine_engine.network.rope import Rope, aligned_head_dim, from_pairs

KeysValues = tuple[Tensor, Tensor]
"""Keys and values (G, n, d) of the same tokens."""


@dataclass(frozen=True)
class LayerInput:
    """What the model gives one layer's attention: query (H, n, d), key and value (G, n, d)."""

    layer: int
    query: Tensor
    key: Tensor
    value: Tensor
    scoring: AttentionParams

    def rows(self, start: int, stop: int | None = None) -> "LayerInput":
        """The same of tokens start .. stop - 1."""
        part = slice(start, stop)
        return LayerInput(
            self.layer, self.query[:, part], self.key[:, part], self.value[:, part], self.scoring
        )


@dataclass(frozen=True)
class Rotation:
    """How one layer rotates, where we do; table: complex (positions, d/2), see Rope."""

    rope: Rope
    table: Tensor

    def rotate(self, vectors: Tensor, positions: Tensor) -> Tensor:
        """Unrotated vectors (heads, n, d) rotated to positions (n,), in pair layout and the table's dtype."""
        return from_pairs(self.rope.to_pairs(vectors.to(self.table.real.dtype)) * self.table[positions])


@dataclass(frozen=True)
class StrategyContext:
    """One prompt under one plan on one device: what a strategy is made from.

    wiring: the network that reads it. room: how many tokens may follow the prompt. recorder: None if no trace
    is asked for.
    """

    plan: AttentionPlan
    patched_model: PatchedModel
    room: int
    recorder: TraceRecorder | None
    device: torch.device

    @property
    def length(self) -> int:
        """Of the prompt with all that may follow it, in tokens."""
        return self.plan.layout.num_tokens + self.room

    @property
    def compute_dtype(self) -> torch.dtype:
        """float32, or float64 for a float64 model: ranking and merging are never done in less."""
        return torch.promote_types(self.patched_model.network.dtype, torch.float32)

    def positions(self) -> Tensor:
        """Position of every token as a query, int64 (n + room,)."""
        return torch.from_numpy(self.plan.query_positions(self.room)).to(self.device)

    def rotations(self) -> tuple[Rotation, ...]:
        """How each layer rotates, to any of the positions. Raises ModelError as head_dim_of does."""
        ropes, head_dim = self.patched_model.ropes, aligned_head_dim(head_dim_of(self.patched_model.network))
        kinds = [
            Rotation(rope, rope.table(self.length, head_dim, self.compute_dtype).to(self.device))
            for rope in ropes.kinds
        ]
        return tuple(kinds[kind] for kind in ropes.of_layer)


def head_dim_of(model: PreTrainedModel) -> int:
    """Dimension of one attention head. Raises ModelError if layers differ in it."""
    config = model.config.get_text_config()
    try:
        head_dim: int | None = getattr(config, "head_dim", None)
    except Exception as error:  # transformers' own, for what is not the same in all layers
        raise ModelError(
            f"{type(model).__name__}: the heads of its layers differ in their dimensions, which is not "
            "supported"
        ) from error
    return head_dim or config.hidden_size // config.num_attention_heads


class DecodeStrategy(Protocol):
    """How tokens attend that follow what has been read: the suffix, decoded tokens, given answers."""

    @property
    def alike(self) -> Hashable:
        """Equal for rows of which any may stand for all, so that they can be extended as one."""

    def extend(self, given: LayerInput, cache: LayerCache, rows: Sequence[Any] = ()) -> Tensor:
        """Attention (H, Q, d) of tokens that follow all that the cache holds, to which they are added.

        rows: what continues each of several rows, all alike, whose heads stand beside each other in `given`
        and cache, None for one that has ended: each tells its own trace. This one alone if there are none.
        """


class Strategy(Protocol):
    """How the layers attend to one prompt under one plan, on one device."""

    @property
    def continuing(self) -> DecodeStrategy:
        """How whatever follows the documents attends."""

    def prefill(self, given: LayerInput, prefix: KeysValues | None, room: int) -> tuple[Tensor, LayerCache]:
        """Attention of a whole prompt, (H, n, d), and the layer's cache with room for what follows.

        prefix: keys, rotated and as the model lays vectors out, and values of a prefix that has been read:
        `given` then begins with the documents. None if it begins with the prefix.
        """

    def prefix(self, layer: int, cache: LayerCache, length: int) -> KeysValues:
        """The prefix of that length in a cache that prefill has filled, as prefill takes it."""
        return cache.keys[:, :length], cache.values[:, :length]

    def adopt(self, layer: int, keys: Tensor, source: AttentionPlan) -> Tensor:
        """Keys (G, n, d) of prefix and documents, from a cache that was filled under a plan that reads
        documents alike, as this strategy keeps them."""
        return keys
