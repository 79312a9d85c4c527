"""Linear layers with 4-bit weights for decoding on the CPU; prefill uses the original weights.

A decode step takes a seventh of float32. Torch's kernel takes bfloat16, accumulates in float32, and is
batch-invariant (docs/exactness.md). Weights of a Q4_1 file are recovered except for rounding to bfloat16.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol, Self

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from pine_engine.errors import ModelError

GROUP = 32  # consecutive weights of one output that share a scale and an offset
ROWS_AT_ONCE = 16  # divisor of the number of outputs that the kernel requires
LEVELS = 15  # largest number of 4 bits
MIDDLE = 8  # number of the offset

ROUNDING = 0.01
"""Maximum distance of a weight stored in 4 bits from a whole number of steps of its group, in steps."""

ADVICE = "load it in float32, bfloat16 or float16"


class DecodeWeight(Protocol):
    """Weight of a linear layer in decode steps of at least `min_rows` rows; all others use the original."""

    min_rows: ClassVar[int]

    @classmethod
    def of(cls, weight: Tensor) -> Self:
        """Convert a floating-point weight (out, in)."""

    def multiply(self, inputs: Tensor) -> Tensor:
        """Return the matrix product of inputs (..., in) and the weight, (..., out), in the inputs' dtype."""


@dataclass
class PackedWeight:
    """A weight in 4 bits."""

    min_rows: ClassVar[int] = 1

    numbers: Tensor  # uint8, in the layout of torch's kernel
    scales: Tensor  # bfloat16 (in / GROUP, out, 2), scale and offset of each group

    @classmethod
    @torch.no_grad()
    def of(cls, weight: Tensor) -> "PackedWeight":
        """Pack a floating-point weight (out, in) of a layer that is_packable."""
        steps, scale, minimum = _in_steps(weight)
        numbers = steps.round().clamp(0, LEVELS).to(torch.int32).flatten(1)
        scales = torch.stack((scale, minimum + MIDDLE * scale), -1).transpose(0, 1)
        return cls(
            torch.ops.aten._convert_weight_to_int4pack_for_cpu(numbers.contiguous(), 1),
            scales.bfloat16().contiguous(),
        )

    def multiply(self, inputs: Tensor) -> Tensor:
        """Return the matrix product of inputs (..., in) and the weight, (..., out), in the inputs' dtype."""
        flat = inputs.reshape(-1, inputs.shape[-1]).bfloat16()
        outputs: Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(flat, self.numbers, GROUP, self.scales)
        return outputs.to(inputs.dtype).view(*inputs.shape[:-1], -1)


def is_packable(layer: nn.Linear) -> bool:
    """Check whether torch's kernel accepts the shape of a layer."""
    return layer.in_features % GROUP == 0 and layer.out_features % ROWS_AT_ONCE == 0


def stored_in_4_bits(model: PreTrainedModel) -> bool:
    """Check, on the first outputs of each layer in float32, whether packing recovers the stored numbers."""
    firsts = [_in_steps(weight[:ROWS_AT_ONCE])[0] for weight in _packable_weights(model)]
    return bool(firsts) and all((steps - steps.round()).abs().max() < ROUNDING for steps in firsts)


def pack(model: PreTrainedModel) -> dict[nn.Parameter, PackedWeight]:
    """Return the weights of linear layers in 4 bits, by parameter.

    The output layer is not packed, because small differences of logits select the token.
    """
    weights = _packable_weights(model)
    problem = ""
    if (model.dtype, model.device.type) != (torch.float32, "cpu"):
        problem = f"got {model.dtype} on {model.device.type}, expected float32 on the cpu"
    elif (model.tp_size or 1) > 1:
        problem = f"it is split among {model.tp_size} processes, expected one"
    elif not weights:
        problem = f"it has no linear layer whose width is a multiple of {GROUP}"
    if problem:
        message = f"{type(model).__name__} cannot be packed into 4 bits: {problem}; {ADVICE}"
        raise ModelError(message, field="dtype")
    return {weight: PackedWeight.of(weight) for weight in weights}


def repack(packed: Mapping[nn.Parameter, DecodeWeight]) -> None:
    """Update the weights of decode steps after a change of their parameters."""
    for weight, stored in packed.items():
        vars(stored).update(vars(stored.of(weight)))


def _packable_weights(model: PreTrainedModel) -> list[nn.Parameter]:
    """Return each packable weight once, in the order of the layers."""
    output_layer = model.get_output_embeddings()
    layers = [layer for layer in model.modules() if type(layer) is nn.Linear and layer is not output_layer]
    # A weight that is no parameter is computed in each forward pass, as by torch.nn.utils.prune.
    weights = [each.weight for each in layers if is_packable(each) and type(each.weight) is nn.Parameter]
    return list(dict.fromkeys(weights))


def _in_steps(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return a weight (out, in) in steps of its groups, the step sizes and the minimums, all float32.

    Shapes: (out, in / GROUP, GROUP) with values 0 to LEVELS, (out, in / GROUP), (out, in / GROUP).
    """
    groups = weight.float().unflatten(1, (-1, GROUP))
    minimum, maximum = groups.amin(-1), groups.amax(-1)
    scale = (maximum - minimum) / LEVELS
    return (groups - minimum[..., None]) / torch.where(scale == 0, 1, scale)[..., None], scale, minimum
