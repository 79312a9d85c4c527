"""Weights of linear layers in 4 bits, with which decoding steps are computed on the CPU.

A step reads every weight for a handful of rows, so that it takes as long as weights are large: in 4 bits they
are a seventh of float32. Prompts are read with the weights as they are, many rows at a time, where packing
gains nothing. Torch's kernel takes activations in bfloat16 and adds up in float32; a row has the same bits
among any number of rows, one included (docs/exactness.md, `verify --self-test`).

Values are packed by groups, each with a scale and an offset of its own. Weights that were stored so, as those
of a Q4_1 file, are found again but for the rounding of scale and offset to bfloat16.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from pine_engine.errors import ModelError

GROUP = 32
"""Weights of one row that share a scale and an offset."""

ROWS_AT_ONCE = 16
"""A number of outputs that the kernel takes is a multiple of this."""

LEVELS = 15
"""The largest number of 4 bits."""

MIDDLE = 8
"""The number that stands for the offset itself."""

ROUNDING = 0.01
"""How far a weight that was stored in 4 bits may be from a whole number of steps of its group, in steps."""

ADVICE = "load it in float32, bfloat16 or float16"


@dataclass
class PackedWeight:
    """A weight (out, in) in 4 bits.

    numbers: uint8, in the layout of torch's kernel. scales: bfloat16 (in / GROUP, out, 2), a scale and an
    offset of each group.
    """

    numbers: Tensor
    scales: Tensor

    @classmethod
    @torch.no_grad()
    def of(cls, weight: Tensor) -> "PackedWeight":
        """Packs a floating-point weight (out, in), for which is_packable."""
        steps, scale, least = _in_steps(weight)
        numbers = steps.round().clamp(0, LEVELS).to(torch.int32).flatten(1)
        scales = torch.stack((scale, least + MIDDLE * scale), -1).transpose(0, 1)
        return cls(
            torch.ops.aten._convert_weight_to_int4pack_for_cpu(numbers.contiguous(), 1),
            scales.bfloat16().contiguous(),
        )

    def update(self, weight: Tensor) -> None:
        """Pack a weight of the same shape in place of the current one."""
        packed = PackedWeight.of(weight)
        self.numbers, self.scales = packed.numbers, packed.scales

    def multiply(self, rows: Tensor) -> Tensor:
        """The product (..., in) by the weight to (..., out), in the dtype of the rows."""
        flat = rows.reshape(-1, rows.shape[-1]).bfloat16()
        product: Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(flat, self.numbers, GROUP, self.scales)
        return product.to(rows.dtype).view(*rows.shape[:-1], -1)


def is_packable(layer: nn.Linear) -> bool:
    """Whether torch's kernel takes a layer of this shape."""
    return layer.in_features % GROUP == 0 and layer.out_features % ROWS_AT_ONCE == 0


def stored_in_4_bits(model: PreTrainedModel) -> bool:
    """Whether packing a model's weights would find the numbers again that they were stored as.

    By the first rows of each layer; of a model in float32 on the CPU.
    """
    firsts = [_in_steps(weight[:ROWS_AT_ONCE])[0] for weight in _packable_weights(model)]
    return bool(firsts) and all((steps - steps.round()).abs().max() < ROUNDING for steps in firsts)


def pack(model: PreTrainedModel) -> dict[nn.Parameter, PackedWeight]:
    """The weights of a model's plain linear layers in 4 bits, by the parameters they are made of.

    What is not packed: the layer that makes logits, whose small differences choose the token, and layers of
    other shapes than torch's kernel takes. Raises ModelError unless the model is float32 on the CPU and not
    split among processes, and if nothing can be packed.
    """
    own = (str(model.dtype).removeprefix("torch."), model.device.type)
    if own != ("float32", "cpu"):
        raise ModelError(
            "4bit is for models in float32 on the cpu, and this one is in {} on {}; {}".format(*own, ADVICE)
        )
    if (model.tp_size or 1) > 1:
        raise ModelError(
            f"4bit is for models that are whole in one process, and this one is split among {model.tp_size}; "
            f"{ADVICE}"
        )
    weights = _packable_weights(model)
    if not weights:
        raise ModelError(
            f"{type(model).__name__} has no linear layer that can be packed into 4 bits, whose width is a "
            f"multiple of {GROUP}; {ADVICE}"
        )
    return {weight: PackedWeight.of(weight) for weight in weights}


def _packable_weights(model: PreTrainedModel) -> list[nn.Parameter]:
    """Each once, in the order of the layers that are made of them."""
    last = model.get_output_embeddings()
    layers = [
        layer
        for layer in model.modules()
        if type(layer) is nn.Linear and layer is not last and is_packable(layer)
    ]
    # A weight that is no parameter is computed anew in each forward pass, as by torch.nn.utils.prune.
    return list(dict.fromkeys(layer.weight for layer in layers if isinstance(layer.weight, nn.Parameter)))


def _in_steps(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A weight (out, in) by its groups: (out, in / GROUP, GROUP) in steps from the least, 0 to LEVELS.

    Then what a step is and the least of each group, (out, in / GROUP), all float32.
    """
    groups = weight.float().unflatten(1, (-1, GROUP))
    least, most = groups.amin(-1), groups.amax(-1)
    scale = (most - least) / LEVELS
    return (groups - least[..., None]) / torch.where(scale == 0, 1, scale)[..., None], scale, least
