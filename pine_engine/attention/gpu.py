"""Selection of the attention kernels for a GPU (`triton_kernels.py`), which torch brings with it on Linux."""

import os
from functools import cache
from importlib import import_module
from types import ModuleType

import torch

MIN_CAPABILITY = (8, 0)
"""First generation of GPUs from NVIDIA whose tensor cores multiply bfloat16 and split float32."""

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def kernels_for(device: torch.device, dtype: torch.dtype) -> ModuleType | None:
    """Return `triton_kernels` if it computes attention of this dtype on the device, otherwise None."""
    is_interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    if dtype not in DTYPES or not (is_interpreted or (device.type == "cuda" and _is_recent(device))):
        return None
    return _module()


@cache
def _is_recent(device: torch.device) -> bool:
    return torch.version.hip is not None or torch.cuda.get_device_capability(device) >= MIN_CAPABILITY


@cache
def _module() -> ModuleType | None:
    try:
        return import_module("pine_engine.attention.triton_kernels")
    except ImportError:  # no Triton for this system
        return None
