"""Rotary position embedding (RoPE) with the model's own frequencies, as multiplication of complex numbers.

Queries and keys keep the pair layout (real and imaginary parts side by side) through attention, because a dot
product does not depend on the order of dimensions.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from pine_engine.errors import ModelError
from pine_engine.models.support import ADVICE, PLACEMENT

Pairing = Literal["half", "interleaved"]
"""Pairs of dimensions that rotate together: i and i + d/2 (half), or 2i and 2i + 1. Families differ."""

ALIGNED_DIMS = 4
"""Head dimensions are padded to multiples of this number. If float32 heads do not begin at multiples of 16
bytes, MKL computes some GEMMs with other instructions, and heads are not batch-invariant."""

FREQUENCIES = "inv_freq"  # last part of the names of buffers with inverse frequencies


@dataclass(frozen=True)
class Rope:
    """Rotary embedding of a layer."""

    inverse_frequencies: Tensor  # (rotary_dim / 2,), radians per token; negative: the model rotates backward
    pairing: Pairing
    scale: float  # factor in the rotary dimensions of queries and keys (yarn, longrope); mostly 1
    start: int = 0  # first rotary dimension; latent attention rotates the last ones

    @cached_property
    def is_identity(self) -> bool:
        """True if the layer does not rotate (NoPE), so that positions have no effect in it."""
        return not self.inverse_frequencies.any().item()

    def table(self, length: int, head_dim: int, dtype: torch.dtype) -> Tensor:
        """Return the rotations to positions 0 .. length - 1 as unit complex numbers (length, head_dim / 2).

        Dimensions beyond the rotary ones are multiplied by 1. Angles are computed in `dtype`, float32 (as in
        transformers) or float64.
        """
        positions = torch.arange(length, device=self.inverse_frequencies.device, dtype=dtype)
        return self.rotations(positions, head_dim)

    def with_base(self, factor: float) -> "Rope":
        """Return the rotation of the model with its base multiplied by a factor; only for plain RoPE."""
        half = self.inverse_frequencies.shape[-1]
        powers = factor ** -(torch.arange(half, dtype=torch.float64) / half)
        scaled = self.inverse_frequencies.double() * powers.to(self.inverse_frequencies.device)
        return replace(self, inverse_frequencies=scaled.to(self.inverse_frequencies.dtype))

    def rotations(self, positions: Tensor, head_dim: int) -> Tensor:
        """Return the rotations to real positions (...) as `table` does, (..., head_dim / 2)."""
        angles = positions[..., None] * self.inverse_frequencies.to(positions)
        angles = nn.functional.pad(angles, (0, head_dim // 2 - angles.shape[-1]))
        return torch.complex(angles.cos(), angles.sin())

    def to_pairs(self, vectors: Tensor) -> Tensor:
        """Convert vectors (..., head_dim), float32 or float64, to complex pairs (..., head_dim / 2)."""
        half = self.inverse_frequencies.shape[-1]
        front, rotary, back = self._split(vectors)
        if self.pairing == "half":
            rotary = rotary.unflatten(-1, (2, half)).transpose(-1, -2)
        else:
            rotary = rotary.unflatten(-1, (half, 2))
        if vectors.shape[-1] > 2 * half:
            pairs = torch.cat((rotary, torch.cat((front, back), dim=-1).unflatten(-1, (-1, 2))), dim=-2)
        else:  # cloned, because empty tensors count as contiguous with any strides
            pairs = rotary.clone(memory_format=torch.contiguous_format)
        return torch.view_as_complex(pairs)

    def unscaled(self, pairs: Tensor) -> Tensor:
        """Divide the rotary dimensions of queries (..., head_dim / 2) by the scale of queries and keys."""
        if self.scale == 1:
            return pairs
        half = self.inverse_frequencies.shape[-1]
        return torch.cat((pairs[..., :half] / self.scale**2, pairs[..., half:]), dim=-1)

    def to_vectors(self, pairs: Tensor) -> Tensor:
        """Convert complex pairs (..., head_dim / 2) to vectors (..., head_dim) in the layout of the model."""
        half = self.inverse_frequencies.shape[-1]
        real = torch.view_as_real(pairs)
        rotary, rest = real[..., :half, :], real[..., half:, :].flatten(-2)
        if self.pairing == "half":
            rotary = rotary.transpose(-1, -2)
        front, back = rest[..., : self.start], rest[..., self.start :]
        return torch.cat((front, rotary.flatten(-2), back), dim=-1)

    def _split(self, vectors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the dimensions (..., n) before the rotary ones, the rotary ones, and those after them."""
        end = self.start + 2 * self.inverse_frequencies.shape[-1]
        return vectors[..., : self.start], vectors[..., self.start : end], vectors[..., end:]


def aligned_head_dim(head_dim: int) -> int:
    """Return the head dimension that attention computes with: the next multiple of ALIGNED_DIMS."""
    return -(-head_dim // ALIGNED_DIMS) * ALIGNED_DIMS


def from_pairs(pairs: Tensor) -> Tensor:
    """View complex pairs (..., head_dim / 2) as vectors (..., head_dim) in pair layout."""
    return torch.view_as_real(pairs).flatten(-2)


def as_pairs(vectors: Tensor) -> Tensor:
    """Convert vectors (..., head_dim) in pair layout to complex pairs (..., head_dim / 2)."""
    return torch.view_as_complex(vectors.contiguous().unflatten(-1, (-1, 2)))


def rotary_modules(model: nn.Module) -> list[nn.Module]:
    """Return the modules that hold frequencies."""
    return [module for module in model.modules() if _own_frequencies(module)]


def possible_ropes(model: nn.Module) -> list[Rope]:
    """Return all rotations that the frequencies allow, and none; a forward pass shows which a layer uses."""
    found: list[Rope] = []
    for module in rotary_modules(model):
        for name, frequencies in _own_frequencies(module):
            scale = float(getattr(module, name.removesuffix(FREQUENCIES) + "attention_scaling", 1.0))
            signed = frequencies, -frequencies
            found += [Rope(one, pairing, scale) for one in signed for pairing in get_args(Pairing)]
    if not found:
        problem = "the model has no rotary position embedding, which PINE needs"
        raise ModelError(f"{problem}; {ADVICE}", field=PLACEMENT)
    # A layer without RoPE (NoPE) rotates by nothing, with any pairing.
    return [*found, Rope(torch.zeros_like(found[0].inverse_frequencies[:1]), "interleaved", 1.0)]


def _own_frequencies(module: nn.Module) -> list[tuple[str, Tensor]]:
    """Return names and values of the module's current frequencies: one set, or one for each type of layer."""
    buffers = dict(module.named_buffers(recurse=False))
    if (table := buffers.get("embed_positions")) is not None:  # sines and cosines of GPT-J (positions, d)
        dims = torch.arange(0, table.shape[-1], 2, device=table.device)
        return [(FREQUENCIES, 1.0 / 10_000 ** (dims / table.shape[-1]))]
    return [
        (name, values)
        for name, values in buffers.items()
        if name.endswith(FREQUENCIES) and "original" not in name
    ]
