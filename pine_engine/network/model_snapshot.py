"""Snapshot of a model's modules and weights, to detect later changes of the model."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pine_engine.network.rope import FREQUENCIES

ADAPTER_STATE = ("_active_adapter", "_disable_adapters", "merged_adapters", "scaling")
"""Attributes of PEFT layers: active adapters and their scaling."""


@dataclass(frozen=True, eq=False)
class ModelSnapshot:
    """Modules, tensors and adapter state of a model at one time.

    Frequencies of rotary modules and tensors with hooks of accelerate are excluded, because a forward pass
    replaces them. Changes through `.data` or numpy, or of an inference tensor, change neither address nor
    version counter. On the CPU, the sample finds them if they change a whole row or column of a weight. Other
    such changes need `torch.autograd.graph.increment_version(weight)`; for an inference tensor, a new engine.
    """

    parts: tuple[Any, ...]  # modules, parameters, buffers, and hooks with which PEFT selects adapters
    settings: tuple[Any, ...]  # adapter state of each module, dtype and device of each tensor
    versions: tuple[tuple[int, int], ...]  # address and version counter of each tensor
    sample: bytes  # one number or more of each row and column of the tensors on the CPU

    @classmethod
    @torch.no_grad()
    def of(cls, model: nn.Module) -> "ModelSnapshot":
        """Take a snapshot."""
        modules = list(model.modules())
        tensors = [tensor for module in modules for tensor in _tensors(module)]
        adapters = [module for module in modules if ADAPTER_STATE[0] in vars(module)]
        hooks = [hook for module in adapters for hook in module._forward_pre_hooks.values()]
        states = [str([vars(module).get(name) for name in ADAPTER_STATE]) for module in adapters]
        return cls(
            parts=(*modules, *hooks, *tensors),
            settings=(*states, *((tensor.dtype, tensor.device) for tensor in tensors)),
            versions=tuple(map(_version, tensors)),
            sample=_sample(tensors),
        )

    def is_same(self, other: "ModelSnapshot") -> bool:
        """Check whether both snapshots show the same structure and the same values."""
        is_equal = self.versions == other.versions and self.sample == other.sample
        return self.has_same_structure(other) and is_equal

    def has_same_structure(self, other: "ModelSnapshot") -> bool:
        """Check whether modules, tensors, adapter state, dtypes and devices are the same."""
        return self.settings == other.settings and list(map(id, self.parts)) == list(map(id, other.parts))


def _tensors(module: nn.Module) -> Iterator[Tensor]:
    if "_hf_hook" in vars(module):
        return
    for tensors in (module._parameters, module._buffers):
        for name, tensor in list(tensors.items()):
            if tensor is not None and not name.endswith(FREQUENCIES):
                yield tensor


def _version(tensor: Tensor) -> tuple[int, int]:
    try:
        address = tensor.data_ptr()
    except RuntimeError:  # a subclass without storage
        address = 0
    return address, 0 if tensor.is_inference() else tensor._version


def _sample(tensors: list[Tensor]) -> bytes:
    """Return a number or more of each row and column of each tensor, as bytes."""
    sample = []
    for tensor in dict.fromkeys(tensors):
        # Subclasses of tensors, such as quantized weights, may refuse to be indexed.
        if type(tensor) in (Tensor, nn.Parameter) and tensor.device.type == "cpu":
            # numpy copies in one thread: threads of torch wait for each other longer than they copy.
            numbers = tensor.flatten().view(torch.uint8).numpy().view(f"V{tensor.itemsize}")
            sample.append(numbers[:: _sample_stride(tensor.shape)].tobytes())
    return b"".join(sample)


def _sample_stride(shape: torch.Size) -> int:
    """Return the largest stride that skips no row and, coprime to the number of columns, no column."""
    num_rows, num_columns = (1, 1, *shape)[-2:]
    strides = range(min(num_rows, num_columns) - 1, 1, -1)
    return next((stride for stride in strides if math.gcd(stride, num_columns) == 1), 1)
