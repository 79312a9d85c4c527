"""Rotation by position: the model's own frequencies, applied as complex numbers.

A head vector is read as complex pairs, so that a rotation is one product. Queries and keys stay in
this pair layout through the attention: a scalar product does not depend on the order of dimensions.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from pine_engine.architecture import ADVICE, DYNAMIC_ROPE_TYPES, SUPPORTED_ROPE_TYPES
from pine_engine.errors import ModelError

Pairing = Literal["half", "interleaved"]
"""Which two dimensions turn together: i and i + d/2, or 2i and 2i + 1. It differs between families."""


@dataclass(frozen=True)
class Rope:
    """Rotary embedding of one model.

    inverse_frequencies: (rotary_dim / 2,), radians per token. pairing: see Pairing; only the
    loading probe can tell which one a model uses. scale: factor that the model multiplies into both
    queries and keys when it rotates (yarn), 1 for most.
    """

    inverse_frequencies: Tensor
    pairing: Pairing
    scale: float

    def table(self, length: int, head_dim: int, dtype: torch.dtype) -> Tensor:
        """Unit complex numbers for positions 0 .. length - 1, (length, head_dim / 2).

        dtype: float32, in which transformers computes angles too, or float64; the table is its complex
        counterpart. Dimensions beyond the rotary ones do not turn.
        """
        positions = torch.arange(length, device=self.inverse_frequencies.device, dtype=dtype)
        angles = positions[:, None] * self.inverse_frequencies.to(dtype)
        angles = nn.functional.pad(angles, (0, head_dim // 2 - angles.shape[-1]))
        return torch.complex(angles.cos(), angles.sin())

    def to_pairs(self, vectors: Tensor) -> Tensor:
        """(..., head_dim), float32 or float64, as complex pairs (..., head_dim / 2)."""
        half = self.inverse_frequencies.shape[-1]
        if self.pairing == "half":
            turning = vectors[..., : 2 * half].unflatten(-1, (2, half)).transpose(-1, -2)
        else:
            turning = vectors[..., : 2 * half].unflatten(-1, (half, 2))
        if vectors.shape[-1] > 2 * half:
            pairs = torch.cat((turning, vectors[..., 2 * half :].unflatten(-1, (-1, 2))), dim=-2)
        else:  # a clone: no vectors at all count as contiguous whatever their strides are
            pairs = turning.clone(memory_format=torch.contiguous_format)
        return torch.view_as_complex(pairs)

    def to_vectors(self, pairs: Tensor) -> Tensor:
        """The inverse of to_pairs: complex pairs (..., head_dim / 2) as the model lays vectors out."""
        half = self.inverse_frequencies.shape[-1]
        real = torch.view_as_real(pairs)
        turning, resting = real[..., :half, :], real[..., half:, :]
        if self.pairing == "half":
            turning = turning.transpose(-1, -2)
        return torch.cat((turning.flatten(-2), resting.flatten(-2)), dim=-1)


def from_pairs(pairs: Tensor) -> Tensor:
    """Complex pairs (..., head_dim / 2) as real vectors (..., head_dim), without copying."""
    return torch.view_as_real(pairs).flatten(-2)


def as_pairs(vectors: Tensor) -> Tensor:
    """The inverse of from_pairs: (..., head_dim) in pair layout as complex (..., head_dim / 2)."""
    return torch.view_as_complex(vectors.contiguous().unflatten(-1, (-1, 2)))


def find_rope(model: nn.Module, pairing: Pairing) -> Rope:
    """The model's rotary embedding, read from its own rotary module.

    Raises ModelError if there is none, or one whose frequencies change with the prompt's length.
    """
    found = [module for module in model.modules() if isinstance(getattr(module, "inv_freq", None), Tensor)]
    if not found and any(name.endswith("inv_freq") for name, _ in model.named_buffers()):
        raise ModelError(
            "the model rotates some layers by other frequencies than others, which is not supported; "
            f"{ADVICE}"
        )
    if not found:
        raise ModelError(f"the model has no rotary position embedding, which PINE needs; {ADVICE}")
    rotary = found[0]
    rope_type = getattr(rotary, "rope_type", "default")
    if rope_type in DYNAMIC_ROPE_TYPES:
        raise ModelError(
            f"rope type {rope_type!r} changes its frequencies with the prompt's length and is not supported; "
            f"use a model with rope type {SUPPORTED_ROPE_TYPES}"
        )
    return Rope(rotary.get_buffer("inv_freq"), pairing, float(getattr(rotary, "attention_scaling", 1.0)))
