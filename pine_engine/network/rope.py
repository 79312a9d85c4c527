"""Rotation by position: the model's own frequencies, applied as complex numbers.

A head vector is read as complex pairs, so that a rotation is one product. Queries and keys stay in
this pair layout through the attention: a scalar product does not depend on the order of dimensions.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from pine_engine.errors import ModelError
from pine_engine.models.support import ADVICE

Pairing = Literal["half", "interleaved"]
"""Which two dimensions turn together: i and i + d/2, or 2i and 2i + 1. It differs between families."""


ALIGNED_DIMS = 4
"""Heads of a multiple of this many float32 dimensions begin at multiples of 16 bytes. At other addresses, MKL
computes some GEMMs with other instructions, and a head of a batch would not be bitwise identical to the same
head alone."""

FREQUENCIES = "inv_freq"
"""How the names of buffers with inverse frequencies end."""


@dataclass(frozen=True)
class Rope:
    """Rotary embedding of one layer, or of all layers that rotate alike.

    inverse_frequencies: (rotary_dim / 2,), radians per token, negative where a model turns the other way.
    pairing: see Pairing. scale: factor that the model multiplies into the dimensions that turn, of both
    queries and keys, when it rotates (yarn, longrope); 1 for most.
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

    def unscaled(self, pairs: Tensor) -> Tensor:
        """Queries as complex pairs (..., head_dim / 2) such that their products with keys are those before
        the model multiplied its scale into both: in the dimensions that turn, and in no others."""
        if self.scale == 1:
            return pairs
        turning = self.inverse_frequencies.shape[-1]
        return torch.cat((pairs[..., :turning] / self.scale**2, pairs[..., turning:]), dim=-1)

    def to_vectors(self, pairs: Tensor) -> Tensor:
        """The inverse of to_pairs: complex pairs (..., head_dim / 2) as the model lays vectors out."""
        half = self.inverse_frequencies.shape[-1]
        real = torch.view_as_real(pairs)
        turning, resting = real[..., :half, :], real[..., half:, :]
        if self.pairing == "half":
            turning = turning.transpose(-1, -2)
        return torch.cat((turning.flatten(-2), resting.flatten(-2)), dim=-1)


def aligned_head_dim(head_dim: int) -> int:
    """Return the head dimension that attention computes with: the next multiple of ALIGNED_DIMS."""
    return -(-head_dim // ALIGNED_DIMS) * ALIGNED_DIMS


def from_pairs(pairs: Tensor) -> Tensor:
    """Complex pairs (..., head_dim / 2) as real vectors (..., head_dim), without copying."""
    return torch.view_as_real(pairs).flatten(-2)


def as_pairs(vectors: Tensor) -> Tensor:
    """The inverse of from_pairs: (..., head_dim) in pair layout as complex (..., head_dim / 2)."""
    return torch.view_as_complex(vectors.contiguous().unflatten(-1, (-1, 2)))


@dataclass(frozen=True)
class LayerRopes:
    """How each layer of a model rotates.

    kinds: the different ropes. of_layer: for each layer, which of them is its own.
    """

    kinds: tuple[Rope, ...]
    of_layer: tuple[int, ...]

    def __getitem__(self, layer: int) -> Rope:
        """The rope of one layer."""
        return self.kinds[self.of_layer[layer]]


def rotary_modules(model: nn.Module) -> list[nn.Module]:
    """The modules that hold frequencies."""
    return [module for module in model.modules() if any(_own_frequencies(module))]


def possible_ropes(model: nn.Module) -> list[Rope]:
    """Every way in which the model may rotate, by the frequencies in its rotary modules; only the loading
    probe can tell which of them a layer uses.

    Raises ModelError if there is none, or one whose frequencies change with every length.
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
    """Name and value of each set of frequencies that the module rotates by: one for all, or one for each kind
    of layer. Those that it could return to are not among them."""
    for name, buffer in module.named_buffers(recurse=False):
        if name.endswith(FREQUENCIES) and "original" not in name:
            yield name, buffer
