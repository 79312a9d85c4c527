"""Interface of the attention strategies: attention of one layer for one prompt, from prefill to decode.

There are five strategies, selected from the columns of the plan (`state.py`): `causal.py`, `isolated.py`,
`placed.py`, `ranked.py` and `rotated.py`.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import ModuleType
from typing import Any, Protocol, cast

import torch
from torch import Tensor

from pine_engine.attention.gpu import kernels_for
from pine_engine.attention.kv_cache import LayerCache
from pine_engine.attention.recorder import TraceRecorder
from pine_engine.errors import ModelError
from pine_engine.methods.plan import AttentionPlan
from pine_engine.methods.table import Method
from pine_engine.models.support import scaled_rope
from pine_engine.network.model_patching import PatchedModel
from pine_engine.network.registration import LayerInput
from pine_engine.network.rope import Rope, aligned_head_dim, from_pairs
from pine_engine.network.stock_model import StockModel

KeysValues = tuple[Tensor, Tensor]  # keys and values (G, n, head_dim) of the same tokens


@dataclass(frozen=True)
class Rotation:
    """Rotary embedding of one layer with its table, complex (positions, head_dim / 2)."""

    rope: Rope
    table: Tensor

    @cached_property
    def cosines_and_sines(self) -> tuple[Tensor, Tensor]:
        """Real and imaginary part of the table, contiguous, for kernels."""
        return self.table.real.contiguous(), self.table.imag.contiguous()

    def rotate(self, vectors: Tensor, positions: Tensor) -> Tensor:
        """Rotate vectors (heads, n, head_dim) to positions (n,); return pair layout in the table's dtype."""
        return from_pairs(self.rope.to_pairs(vectors.to(self.table.real.dtype)) * self.table[positions])


class DecodeStrategy(Protocol):
    """Attention of tokens after the documents: the suffix, decoded tokens, and candidate answers."""

    @property
    def batch_key(self) -> Hashable:
        """Key of sequences that can be batched: equal keys mean equal computation."""

    def extend(self, inputs: LayerInput, cache: LayerCache, members: Sequence[Any] = ()) -> Tensor:
        """Append tokens to the cache of one layer, and return their attention output.

        Args:
            inputs: Tokens that follow those in the cache. Its scoring has scale, softcap and sinks.
            cache: Cache of the layer, to which keys and values are appended.
            members: Strategies of batched sequences, whose heads are concatenated in `inputs` and `cache`.
                Each records its own trace. None for a finished sequence. Without members, there is one.

        Shape:
            inputs.query: (B * H, Q, head_dim), dtype of the model, rotated as in `prefill`. B is the number
                of members, or 1; H and G are the query and key heads of one sequence.
            inputs.key, inputs.value: (B * G, Q, head_dim), as the query.
            cache.keys, cache.values: (B * G, capacity, head_dim), dtype of the model, or PromptState's
                compute_dtype if the plan ranks.
            Returns: (B * H, Q, head_dim), dtype of the query.
        """


class Strategy(Protocol):
    """Attention of all layers of one device for one prompt and plan.

    A subclass is one kind of attention. `prefill` is called once for each layer, and `extend` of the
    `decode_strategy` for each layer of each later pass. docs/recipes.md has a short subclass that runs.
    """

    @property
    def decode_strategy(self) -> DecodeStrategy:
        """Strategy for the tokens after the documents: this object, unless a subclass returns another."""
        return cast(DecodeStrategy, self)

    def prefill(self, inputs: LayerInput, prefix: KeysValues | None) -> tuple[Tensor, LayerCache]:
        """Compute the attention of a prompt in one layer.

        Args:
            inputs: Tokens of the prompt, in the order of the input.
            prefix: Keys and values of a prefilled prefix, which `inputs` then lacks; otherwise None.

        Shape:
            inputs.query: (H, n, head_dim), dtype of the model. It is rotated if the plan has the model rotate
                (`AttentionPlan.model_rotates`), otherwise unrotated.
            inputs.key, inputs.value: (G, n, head_dim), as the query.
            prefix: keys and values (G, prefix, head_dim) as `prefix` returns them: keys are rotated, in the
                layout of the model, in the dtype of the cache they are from.

        Returns:
            Attention output (H, n, head_dim) in the dtype of the query, and the cache of all tokens, with
            space for those that follow.
        """

    def prefix(self, layer: int, cache: LayerCache, length: int) -> KeysValues:
        """Return the prefix in a prefilled cache, in the form that `prefill` expects.

        Args:
            layer: Index of the layer.
            cache: Cache of the layer, from this strategy.
            length: Number of tokens of the prefix.

        Shape:
            Returns: keys and values (G, length, head_dim), keys rotated, in the layout of the model.
        """
        return cache.keys[:, :length], cache.values[:, :length]

    def convert_keys(self, layer: int, keys: Tensor, source: AttentionPlan) -> Tensor:
        """Convert cached keys of prefix and documents to those of this strategy.

        Args:
            layer: Index of the layer.
            keys: Keys in a cache that another prompt under `source` has filled.
            source: Plan of that prompt, which encodes documents in the same way.

        Shape:
            keys: (G, n, head_dim), rotated, dtype of the cache; n tokens of prefix and documents, or of the
                prefix if the plan ranks. Returns: as keys.
        """
        return keys


@dataclass(frozen=True)
class PromptState:
    """State that all layers of one prompt under one method share.

    Attributes:
        reserved_tokens: Number of tokens that may follow the prompt.
        positions: int64 or float32 (num_tokens,), position of every token as a query.
        log_weights: Logarithm of the weight of each document from a first pass; None without one.
        strategies: Attention strategy for each device of the model.
    """

    plan: AttentionPlan
    patched_model: PatchedModel
    recorder: TraceRecorder | None
    reserved_tokens: int
    positions: Tensor
    log_weights: tuple[float, ...] | None = None
    strategies: dict[torch.device, Strategy] = field(default_factory=dict, repr=False, compare=False)

    @property
    def num_tokens(self) -> int:
        """Maximum number of tokens of prompt and answer."""
        return self.plan.layout.num_tokens + self.reserved_tokens

    @property
    def compute_dtype(self) -> torch.dtype:
        """Dtype of ranking and merging: float32, or float64 for a float64 model."""
        return torch.promote_types(self.patched_model.network.dtype, torch.float32)

    def position_ids(self, first: int, count: int) -> Tensor:
        """Return the position ids (1, count) of tokens first .. first + count - 1 for the model."""
        ids = self.positions[None, first : first + count]
        return ids if self.plan.model_rotates else torch.zeros_like(ids)

    def rotations(self, device: torch.device) -> tuple[Rotation, ...]:
        """Return the rotation of each layer.

        Raises:
            ModelError: The method changes the base of a scaled RoPE.
        """
        model, method = self.patched_model, self.plan.method
        check_fit(method, model)
        rotations: dict[tuple[int, int], Rotation] = {}  # by id, because layers share few ropes
        keys = [
            (id(rope), aligned_head_dim(dim)) for rope, dim in zip(model.ropes, model.head_dims, strict=True)
        ]
        for rope, key in zip(model.ropes, keys, strict=True):
            if key not in rotations:
                changed = rope.with_base(method.rope_base)
                table = changed.table(self.num_tokens, key[1], self.compute_dtype).to(device)
                rotations[key] = Rotation(changed, table)
        return tuple(rotations[key] for key in keys)


def exact_kernels(state: PromptState, device: torch.device) -> ModuleType | None:
    """Return the kernels of a GPU if the document order shall not change a bit under the method."""
    return placing_kernels(state, device) if state.plan.method.is_order_invariant else None


def placing_kernels(state: PromptState, device: torch.device) -> ModuleType | None:
    """Return the kernels of a GPU, which have no sinks."""
    model = state.patched_model
    return None if model.has_sinks else kernels_for(device, model.network.dtype)


def misfit(method: Method, model: PatchedModel) -> str | None:
    """Return why a method does not fit a model; None if it fits."""
    if isinstance(model, StockModel):
        does_fit = method.fits("passes")
        return None if does_fit else f"{method.name} places documents, which does not fit {model.reason}"
    if method.rope_bases and (kind := scaled_rope(model.network.config)):
        return f"{method.name} changes the base of plain RoPE only, and the model has scaled RoPE ({kind})"
    return None


def check_fit(method: Method, model: PatchedModel) -> None:
    """Raise ModelError if the method does not fit the model."""
    if reason := misfit(method, model):
        raise ModelError(f"{reason}. Choose another method or model.", field="methods")
