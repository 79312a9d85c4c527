"""Snapshot of a model's modules and weights, to detect later changes of the model."""

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
    replaces them. The sample finds changes through `.data`, or of an inference tensor, which change neither
    address nor version counter.
    """

    parts: tuple[Any, ...]  # modules, parameters, buffers, and hooks with which PEFT selects adapters
    settings: tuple[Any, ...]  # adapter state of each module, dtype and device of each tensor
    versions: tuple[tuple[int, int], ...]  # address and version counter of each tensor
    sample: Tensor  # bytes of a few numbers of each tensor on the CPU

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
        is_equal = self.versions == other.versions and torch.equal(self.sample, other.sample)
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


def _sample(tensors: list[Tensor]) -> Tensor:
    """Return the first weights along the last dimension of each tensor, as bytes."""
    # Subclasses of tensors, such as quantized weights, may refuse to be indexed.
    plain = [one for one in tensors if type(one) in (Tensor, nn.Parameter) and one.device.type == "cpu"]
    rows = [one[(0,) * (one.dim() - 1)].contiguous() for one in plain if one.dim() and one.numel()]
    return torch.cat([row.view(torch.uint8) for row in rows]) if rows else torch.empty(0)
