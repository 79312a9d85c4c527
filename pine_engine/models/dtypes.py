"""Dtypes that models are loaded in, and the rule by which `auto` selects one."""

import sys
from typing import TYPE_CHECKING, Any, Literal, get_args

from pine_engine.errors import ModelError

if TYPE_CHECKING:  # see checkpoint.py
    import torch
    from transformers import PreTrainedConfig

Dtype = Literal["float32", "bfloat16", "float16", "4bit"]
"""Dtype of a loaded model; 4bit is float32 with 4-bit weights for decode, see packed.py."""

RequestedDtype = Literal["auto", Dtype]  # dtype in a request; auto is resolved by resolve_dtype

DTYPES: tuple[Dtype, ...] = get_args(Dtype)
REQUESTED_DTYPES: tuple[RequestedDtype, ...] = ("auto", *DTYPES)  # in the order of the page

LOADED_IN: dict[Dtype, Dtype] = {name: name for name in DTYPES} | {"4bit": "float32"}
"""Torch's name of the dtype in which the weights are loaded."""

BYTES: dict[Dtype, float] = {"float32": 4, "bfloat16": 2, "float16": 2, "4bit": 4.625}
"""Bytes per weight; 4bit keeps the float32 weights and adds 4 bits and a share of a scale and an offset."""

INT4_KERNELS = ("AVX2", "AVX512")
"""CPU capabilities, in torch's names, with a vectorized kernel for 4-bit weights (docs/measured.md)."""


def known_dtype(dtype: Any) -> RequestedDtype:
    """Return a dtype from its name or from torch. Raises ModelError for other dtypes."""
    name = str(dtype).removeprefix("torch.")
    if name not in REQUESTED_DTYPES:
        message = f"dtype {dtype!r} is not supported; use one of {', '.join(REQUESTED_DTYPES)}"
        raise ModelError(message, field="dtype")
    return name


def resolve_dtype(dtype: RequestedDtype, device: str, *, stored: Dtype) -> Dtype:
    """Return the dtype itself, or the one that `auto` selects.

    On the CPU `auto` is the stored dtype if the processor has instructions for it, else float32; on a GPU,
    bfloat16 if supported; for "tp" float32. Nothing is timed: all processes select the same dtype.
    """
    if dtype != "auto":
        return dtype
    import torch

    kind = "cuda" if device == "auto" and torch.cuda.is_available() else device.partition(":")[0]
    if kind == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False):
        return "bfloat16"
    return stored if kind in ("cpu", "auto") and has_instructions(stored) else "float32"


def has_instructions(dtype: Dtype) -> bool:
    """Check whether `auto` may select a dtype other than float32 on this processor."""
    import torch

    if dtype == "4bit":
        # Torch's kernel is scalar code in a build by MSVC, and was not measured on processors other than x86.
        return torch.backends.cpu.get_cpu_capability() in INT4_KERNELS and sys.platform != "win32"
    return dtype == "bfloat16" and multiplies_in(torch.bfloat16)


def stored_dtype(config: "PreTrainedConfig") -> Dtype:
    """Return the dtype that a config states for the weights; float32 if it states none or an unknown one."""
    name = str(config.dtype or config.get_text_config().dtype).removeprefix("torch.")
    return name if name in DTYPES else "float32"


def multiplies_in(dtype: "torch.dtype") -> bool:
    """Check whether this processor has instructions for GEMM in a half-precision dtype."""
    import torch

    names = {
        torch.bfloat16: ("_is_avx512_bf16_supported", "_is_amx_tile_supported"),
        torch.float16: ("_is_amx_fp16_supported",),
    }[dtype]
    return any(hasattr(torch.cpu, name) and getattr(torch.cpu, name)() for name in names)
