"""Number formats that models are loaded in, and which of them writes fastest on a device."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, get_args

from pine_engine.errors import ModelError

if TYPE_CHECKING:  # imported where it is used, for the reason that checkpoint.py gives
    import torch

Dtype = Literal["float32", "bfloat16", "float16", "4bit"]
"""4bit is float32 with weights in 4 bits for writing answers, see packed.py."""

AskedDtype = Literal["auto", Dtype]
"""auto is the one that writes fastest; 4bit only for weights that were stored so."""

ASKED: tuple[AskedDtype, ...] = ("auto", *get_args(Dtype))
"""In the order in which they are offered."""

LOADED_IN: dict[Dtype, str] = {name: name for name in get_args(Dtype)} | {"4bit": "float32"}
"""What torch calls the dtype of the weights that are read."""

BYTES: dict[Dtype, float] = {"float32": 4, "bfloat16": 2, "float16": 2, "4bit": 4.625}
"""Of one weight; in 4 bits each is there beside its float32, with its share of a scale and an offset."""

ROWS = 4
"""Answers that are usually written together."""

LAYERS, WIDTH = 8, 1024
"""Square weights that are tried: together larger than a processor's second cache, as a model's are."""

REPEATS = 9
"""Of which the fastest counts, since whoever else is busy only adds; all together take a seventh of a second
where nobody is."""

_measured: dict[Dtype, float] = {}


def known_dtype(dtype: Any) -> AskedDtype:
    """The dtype, by its name or torch's own, if models are loaded in it; else raises ModelError."""
    for known in ASKED:
        if str(dtype).removeprefix("torch.") == known:
            return known
    raise ModelError(f"dtype {dtype!r} is not supported; use one of {', '.join(ASKED)}")


def settled(dtype: AskedDtype, device: str, *, four_bit: bool = False) -> Dtype:
    """The dtype itself, or what auto is on a device, in torch's name of it.

    four_bit: whether the weights may have been stored in 4 bits; see packed.stored_in_4_bits.
    """
    return fastest(device, four_bit=four_bit) if dtype == "auto" else dtype


def fastest(device: str, *, four_bit: bool) -> Dtype:
    """The dtype that writes fastest: measured once in a process on a CPU, in a fraction of a second.

    On a GPU, which "auto" means where there is one, it is bfloat16 if it multiplies in that dtype.
    four_bit: whether 4bit is among those to choose from.
    """
    import torch

    kind = "cuda" if device == "auto" and torch.cuda.is_available() else device.partition(":")[0]
    if kind == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False):
        return "bfloat16"
    if kind not in ("cpu", "auto"):
        return "float32"
    seconds = seconds_of_a_step()
    return min((dtype for dtype in seconds if four_bit or dtype != "4bit"), key=lambda dtype: seconds[dtype])


def seconds_of_a_step() -> dict[Dtype, float]:
    """How long a few rows take on the CPU by dtype, in seconds; measured once in a process."""
    if not _measured:
        import torch

        with torch.inference_mode():
            _measured.update({dtype: _seconds(step) for dtype, step in _steps().items()})
    return _measured.copy()


def go_by(seconds: dict[Dtype, float]) -> None:
    """Takes what seconds_of_a_step has returned in another process, so that `auto` is the same in both."""
    _measured.clear()
    _measured.update(seconds)


def multiplies_in(dtype: "torch.dtype") -> bool:
    """Whether this processor has instructions for products in a half-precision dtype."""
    import torch

    names = {
        torch.bfloat16: ("_is_avx512_bf16_supported", "_is_amx_tile_supported"),
        torch.float16: ("_is_amx_fp16_supported",),
    }[dtype]
    return any(hasattr(torch.cpu, name) and getattr(torch.cpu, name)() for name in names)


def _steps() -> dict[Dtype, Callable[[], None]]:
    """By dtype, what multiplies a few rows by weights, as a decoding step of a small model does."""
    import torch
    from torch.nn.functional import linear

    from pine_engine.models.packed import PackedWeight

    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(ROWS, WIDTH, generator=generator)
    weights = [torch.randn(WIDTH, WIDTH, generator=generator) for _ in range(LAYERS)]

    def step_in(dtype: "torch.dtype") -> Callable[[], None]:
        own_rows, own = rows.to(dtype), [weight.to(dtype) for weight in weights]
        return lambda: [linear(own_rows, weight) for weight in own].clear()

    packed = [PackedWeight.of(weight) for weight in weights]
    steps: dict[Dtype, Callable[[], None]] = {
        "float32": step_in(torch.float32),
        "4bit": lambda: [weight.multiply(rows) for weight in packed].clear(),
    }
    return steps | ({"bfloat16": step_in(torch.bfloat16)} if multiplies_in(torch.bfloat16) else {})


def _seconds(step: Callable[[], None]) -> float:
    found = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        step()
        found.append(time.perf_counter() - began)
    return min(found)
