"""Rotary position embedding (RoPE) with the model's own frequencies, as multiplication of complex numbers.

Queries and keys keep the pair layout (real and imaginary parts side by side) through attention, because a dot
product does not depend on the order of dimensions.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from pine_engine.errors import ModelError
from pine_engine.models.support import ADVICE

Pairing = Literal["half", "interleaved"]
"""Pairs of dimensions that rotate together: i and i + d/2 (half), or 2i and 2i + 1. Families differ."""

ALIGNED_DIMS = 4
"""Head dimensions are padded to multiples of this number, so that float32 heads begin at multiples of 16
bytes. At other addresses MKL computes some GEMMs with other instructions, and heads are not
batch-invariant."""

FREQUENCIES = "inv_freq"
"""Last part of the names of buffers with inverse frequencies."""


@dataclass(frozen=True)
class Rope:
    """Rotary embedding of a layer.

    Attributes:
        inverse_frequencies: (rotary_dim / 2,), radians per token; negative if the model rotates backward.
        pairing: Pairs of dimensions.
        scale: Factor that the model multiplies into the rotary dimensions of queries and keys (yarn,
            longrope); mostly 1.
    """

    inverse_frequencies: Tensor
    pairing: Pairing
    scale: float

    def table(self, length: int, head_dim: int, dtype: torch.dtype) -> Tensor:
        """Return the rotations to positions 0 .. length - 1 as unit complex numbers.

        Dimensions beyond the rotary ones are multiplied by 1. transformers computes angles in float32 too.

        Args:
            length: Number of positions.
            head_dim: Dimensions of a head.
            dtype: float32 or float64; the result is its complex counterpart.

        Shape:
            Returns: (length, head_dim / 2).
        """
        positions = torch.arange(length, device=self.inverse_frequencies.device, dtype=dtype)
        angles = positions[:, None] * self.inverse_frequencies.to(dtype)
        angles = nn.functional.pad(angles, (0, head_dim // 2 - angles.shape[-1]))
        return torch.complex(angles.cos(), angles.sin())

    def to_pairs(self, vectors: Tensor) -> Tensor:
        """Convert vectors (..., head_dim), float32 or float64, to complex pairs (..., head_dim / 2)."""
        half = self.inverse_frequencies.shape[-1]
        if self.pairing == "half":
            rotary = vectors[..., : 2 * half].unflatten(-1, (2, half)).transpose(-1, -2)
        else:
            rotary = vectors[..., : 2 * half].unflatten(-1, (half, 2))
        if vectors.shape[-1] > 2 * half:
            pairs = torch.cat((rotary, vectors[..., 2 * half :].unflatten(-1, (-1, 2))), dim=-2)
        else:  # cloned, because empty tensors count as contiguous with any strides
            pairs = rotary.clone(memory_format=torch.contiguous_format)
        return torch.view_as_complex(pairs)

    def unscaled(self, pairs: Tensor) -> Tensor:
        """Divide queries, complex pairs (..., head_dim / 2), by the scale of queries and keys.

        Dot products with the keys are then those without the scale. Only rotary dimensions are divided.
        """
        if self.scale == 1:
            return pairs
        half = self.inverse_frequencies.shape[-1]
        return torch.cat((pairs[..., :half] / self.scale**2, pairs[..., half:]), dim=-1)

    def to_vectors(self, pairs: Tensor) -> Tensor:
        """Convert complex pairs (..., head_dim / 2) to vectors (..., head_dim) in the layout of the model."""
        half = self.inverse_frequencies.shape[-1]
        real = torch.view_as_real(pairs)
        rotary, rest = real[..., :half, :], real[..., half:, :]
        if self.pairing == "half":
            rotary = rotary.transpose(-1, -2)
        return torch.cat((rotary.flatten(-2), rest.flatten(-2)), dim=-1)


def aligned_head_dim(head_dim: int) -> int:
    """Return the head dimension that attention computes with: the next multiple of ALIGNED_DIMS."""
    return -(-head_dim // ALIGNED_DIMS) * ALIGNED_DIMS


def from_pairs(pairs: Tensor) -> Tensor:
    """View complex pairs (..., head_dim / 2) as vectors (..., head_dim) in pair layout."""
    return torch.view_as_real(pairs).flatten(-2)


def as_pairs(vectors: Tensor) -> Tensor:
    """Convert vectors (..., head_dim) in pair layout to complex pairs (..., head_dim / 2)."""
    return torch.view_as_complex(vectors.contiguous().unflatten(-1, (-1, 2)))


@dataclass(frozen=True)
class LayerRopes:
    """Rotary embeddings of all layers: the distinct ones, and for each layer the index of its own."""

    kinds: tuple[Rope, ...]
    of_layer: tuple[int, ...]

    def __getitem__(self, layer: int) -> Rope:
        """Return the rotary embedding of a layer."""
        return self.kinds[self.of_layer[layer]]


def rotary_modules(model: nn.Module) -> list[nn.Module]:
    """Return the modules that hold frequencies."""
    return [module for module in model.modules() if any(_own_frequencies(module))]


def possible_ropes(model: nn.Module) -> list[Rope]:
    """Return all rotations that the frequencies of the model's rotary modules allow.

    Only a forward pass can show which of them a layer uses.

    Raises:
        ModelError: The model has no rotary module.
    """
    found = []
    for module in rotary_modules(model):
        for name, frequencies in _own_frequencies(module):
            scale = getattr(module, name.removesuffix(FREQUENCIES) + "attention_scaling", 1.0)
            found.append(Rope(frequencies, "half", float(scale)))
    if not found:
        raise ModelError(f"the model has no rotary position embedding, which PINE needs; {ADVICE}")
    return [
        replace(rope, inverse_frequencies=sign * rope.inverse_frequencies, pairing=pairing)
        for rope in found
        for sign in (1, -1)
        for pairing in get_args(Pairing)
    ]


def _own_frequencies(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield name and value of the module's current frequencies: one set, or one for each type of layer."""
    for name, buffer in module.named_buffers(recurse=False):
        if name.endswith(FREQUENCIES) and "original" not in name:
            yield name, buffer
