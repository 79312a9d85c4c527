"""Batch-invariant operations: the result for one token is bitwise identical in every batch.

On the CPU, torch's operations are not like that (docs/exactness.md). So float32 GEMMs use oneDNN. GEMMs in
half precision are native ones of a fixed number of rows if the processor multiplies in that dtype; otherwise
they are computed in float32 and rounded once. Elementwise functions are split into whole SIMD blocks. On a
GPU, torch's operations are used.
"""

import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from functools import cache, partial
from types import FrameType
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode, _get_current_function_mode, _pop_mode_temporarily

from pine_engine.models.dtypes import multiplies_in
from pine_engine.models.packed import DecodeWeight
from pine_engine.network.layer_progress import add_flop
from pine_engine.network.parallel import is_split
from pine_engine.network.thread_tuner import torch_num_threads

SIMD_BLOCK = 64
"""Elements of two AVX-512 registers of the narrowest dtype, a multiple of all loop steps of torch."""

SINGLE_THREAD_MAX_NUMEL = 16_384
"""Largest number of elements for which no elementwise function uses a second thread."""

PARALLEL_MIN_NUMEL_PER_THREAD = 32_768
"""Number of elements per thread from which every elementwise function uses all threads, in equal parts."""

UPCAST_CHUNK_NUMEL = 2**21  # half-precision weights converted to float32 at a time, in 8 MB

HALF_PRECISION = (torch.bfloat16, torch.float16)

DECODE_BLOCK, PREFILL_BLOCK = 32, 128
"""Number of rows of each native GEMM in half precision, in decode steps and in all other passes.

Sums of a native GEMM differ between numbers of rows, so the number never depends on the input. Larger blocks
have more padding in short prompts; smaller ones read the weights more often in long prompts.
"""

PROBE_WEIGHT_SHAPES = ((576, 1536), (1536, 576), (333, 100))
"""Shapes (out, in) of the weights of the GEMMs that test blocks."""

HAS_ONEDNN: bool = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")

Forward = Callable[..., Any]

SINGLE_ROW_PASS: ContextVar[bool] = ContextVar("is_one_row", default=False)
"""True inside a forward pass of a single token, if its GEMMs may differ from those of a batch."""

IN_DECODE_STEP: ContextVar[bool] = ContextVar("is_step", default=False)
"""True inside a decode step, which has weights of its own for some layers (`DecodeWeight`)."""


def invariant_linear(rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Apply a linear layer, weight (out, in), batch-invariantly to rows (..., in)."""
    if rows.device.type == "cpu" and is_quantized(weight):
        weight = weight.dequantize().to(rows.dtype)
    use_onednn = HAS_ONEDNN and rows.device.type == weight.device.type == "cpu" and rows.dtype == weight.dtype
    if not use_onednn or not rows.numel():
        return functional.linear(rows, weight, bias)
    if uses_blocks(rows.dtype, rows.device):
        return _block_gemm(rows, weight, bias, DECODE_BLOCK if IN_DECODE_STEP.get() else PREFILL_BLOCK)
    is_single_row = rows.numel() == rows.shape[-1]
    if is_single_row and not SINGLE_ROW_PASS.get():
        return invariant_linear(torch.cat((rows, rows)), weight, bias)[: len(rows)]
    if rows.dtype == torch.float32:
        return onednn_gemm(rows, weight, bias)
    if rows.dtype in HALF_PRECISION and not is_single_row:
        return _fp32_gemm(rows, weight, bias)
    return functional.linear(rows, weight, bias)


def is_quantized(weight: Tensor) -> bool:
    """Check for a tensor of torchao or quanto, which computes its dense values."""
    return type(weight).dequantize is not Tensor.dequantize


def uses_blocks(dtype: torch.dtype, device: torch.device) -> bool:
    """Check whether linear layers are native GEMMs in blocks of rows, also for a single row."""
    return HAS_ONEDNN and device.type == "cpu" and dtype in HALF_PRECISION and multiplies_in(dtype)


def is_batch_invariant(dtype: torch.dtype, device: torch.device) -> bool:
    """Check whether linear layers are batch-invariant on a device.

    If so, batch size (2 or more) and number of threads may change between calls.
    """
    if uses_blocks(dtype, device):
        return block_gemm_is_batch_invariant(dtype, torch.get_num_threads())
    return HAS_ONEDNN and device.type == "cpu" and dtype in (torch.float32, *HALF_PRECISION)


@cache
def block_gemm_is_batch_invariant(dtype: torch.dtype, threads: int) -> bool:
    """Check, by a few GEMMs, whether a row has one result at every index of a block.

    With one thread and with `threads`, and next to other rows.
    """
    blocks = DECODE_BLOCK, PREFILL_BLOCK
    for (num_outputs, num_inputs), block in itertools.product(PROBE_WEIGHT_SHAPES, blocks):
        rows = cancelling_rows(block, num_inputs, dtype)
        weight = cancelling_weight(num_outputs, num_inputs, dtype)
        with torch_num_threads(1):
            expected = functional.linear(rows, weight)
        for num_threads in {1, threads}:
            with torch_num_threads(num_threads):
                moved = functional.linear(rows.flip(0), weight).flip(0)
                repeated = functional.linear(rows[:1].repeat(block, 1), weight)
            if not (torch.equal(moved, expected) and (repeated == expected[0]).all()):
                return False
    return True


def cancelling_rows(num_rows: int, num_inputs: int, dtype: torch.dtype) -> Tensor:
    """Return random rows (num_rows, num_inputs) in which each number has its negative at a random index.

    Their products with `cancelling_weight` sum to 0, so that computed sums are rounding errors alone. Another
    order of a sum then changes most results, also after rounding to half precision.
    """
    return _paired(num_rows, num_inputs, dtype, -1)


def cancelling_weight(num_outputs: int, num_inputs: int, dtype: torch.dtype) -> Tensor:
    """Return a random weight (num_outputs, num_inputs), equal at the indices of each pair."""
    return _paired(num_outputs, num_inputs, dtype, 1)


def _paired(count: int, num_inputs: int, dtype: torch.dtype, sign: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    half = num_inputs // 2
    indices = torch.randperm(2 * half, generator=generator)  # equal for rows and weights
    numbers = torch.randn(count, half, generator=generator.manual_seed(2 + sign)).to(dtype)
    # The last of an odd number of inputs is 0.
    return functional.pad(torch.cat((numbers, sign * numbers), 1)[:, indices], (0, num_inputs - 2 * half))


def onednn_gemm(rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Apply a linear layer, weight (out, in), to rows (..., in) of the same dtype by oneDNN."""
    result: Tensor = torch.ops.mkldnn._linear_pointwise(rows, weight, bias, "none", [], "")
    return result


def _block_gemm(rows: Tensor, weight: Tensor, bias: Tensor | None, block: int) -> Tensor:
    """Apply a native linear layer to `block` rows at a time, the last padded with zeros."""
    flat = rows.reshape(-1, rows.shape[-1])
    padded = functional.pad(flat, (0, 0, 0, -len(flat) % block))
    parts = [functional.linear(part, weight, bias) for part in padded.split(block)]
    return torch.cat(parts)[: len(flat)].view(*rows.shape[:-1], -1)


def _fp32_gemm(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Compute a half-precision GEMM in float32 and round once, converting a chunk of weights at a time."""
    fp32_rows, result = rows.float(), rows.new_empty(*rows.shape[:-1], len(weight))
    chunk = max(1, UPCAST_CHUNK_NUMEL // weight.shape[1])
    for first in range(0, len(weight), chunk):
        part = slice(first, first + chunk)
        fp32_bias = None if bias is None else bias[part].float()
        result[..., part] = onednn_gemm(fp32_rows, weight[part].float(), fp32_bias)
    return result


def invariant_elementwise(function: Callable[[Tensor], Tensor], values: Tensor) -> Tensor:
    """Return function(values), where each element is independent of its index and of the other elements."""
    if values.device.type != "cpu" or not values.is_floating_point():
        return function(values)
    count, threads = values.numel(), torch.get_num_threads()
    step = SIMD_BLOCK * threads if count >= PARALLEL_MIN_NUMEL_PER_THREAD * threads else SIMD_BLOCK
    max_part = count if step > SIMD_BLOCK or threads == 1 else SINGLE_THREAD_MAX_NUMEL
    if count % step == 0 and count <= max_part and values.is_contiguous():
        return function(values)
    flat, end = values.contiguous().view(-1), count - count % step
    rest = functional.pad(flat[end:], (0, -count % SIMD_BLOCK))  # shorter than a step, so it uses one thread
    parts = [part for part in (*flat[:end].split(max_part), rest) if len(part)]
    return torch.cat([function(part) for part in parts])[:count].view(values.shape)


def _matmul(rows: Tensor, other: Tensor) -> Tensor:
    """Multiply batch-invariantly by a weight matrix, or by a stack of them with its own rows for each."""
    if other.dim() == 2 and rows.dim() >= 2:
        return invariant_linear(rows, other.mT)
    if rows.dim() == other.dim() == 3 and rows.shape[0] == other.shape[0]:
        return torch.stack([invariant_linear(*pair) for pair in zip(rows, other.mT, strict=True)])
    return torch.matmul(rows, other)


def _elementwise_call(function: Callable[..., Tensor], values: Tensor, *args: Any, **options: Any) -> Tensor:
    in_place = options.pop("inplace", False)
    result = invariant_elementwise(lambda part: function(part, *args, **options), values)
    return values.copy_(result) if in_place else result


_ELEMENTWISE: dict[Any, str] = {
    functional: "silu gelu mish softplus logsigmoid elu selu celu",
    **dict.fromkeys((torch, Tensor), "exp expm1 log log1p sigmoid tanh erf cos sin"),
}
"""Functions whose SIMD loop and scalar loop can round differently, by module."""

_REPLACEMENTS: dict[Callable[..., Any], Callable[..., Any]] = {
    functional.linear: invariant_linear,
    **dict.fromkeys(
        (torch.matmul, torch.mm, torch.bmm, Tensor.matmul, Tensor.mm, Tensor.bmm, Tensor.__matmul__), _matmul
    ),
    **{
        (function := getattr(home, name)): partial(_elementwise_call, function)
        for home, names in _ELEMENTWISE.items()
        for name in names.split()
    },
}
"""Batch-invariant replacement of each torch function, for modules under BatchInvariantMode."""


class BatchInvariantMode(TorchFunctionMode):
    """Replace torch functions by batch-invariant ones for all calls in this thread."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _REPLACEMENTS.get(func, func)(*args, **(kwargs or {}))


class OpCallerRecorder(TorchFunctionMode):
    """Collect the modules that call a torch function which has a batch-invariant replacement."""

    def __init__(self) -> None:
        super().__init__()
        self.modules: dict[nn.Module, None] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _REPLACEMENTS and (module := _calling_module(sys._getframe(1))):
            self.modules[module] = None
        return func(*args, **(kwargs or {}))


def _calling_module(frame: FrameType | None) -> nn.Module | None:
    while frame is not None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, nn.Module):
            return caller
        frame = frame.f_back
    return None


def patch_linear_layers(model: nn.Module, packed: Mapping[nn.Parameter, DecodeWeight]) -> None:
    """Make all linear layers of a patched model batch-invariant; `packed` is for decode steps."""
    for module in model.modules():
        if type(module) is nn.Linear and is_split(module):
            _wrap_forward(module, _with_invariant_mode)
        elif type(module) is nn.Linear or (isinstance(module, nn.Linear) and is_quantized(module.weight)):
            forward = partial(_linear_layer, module, packed.get(cast(nn.Parameter, module.weight)))
            setattr(module, _forward_name(module), forward)


def patch_op_callers(model: nn.Module, callers: Iterable[nn.Module]) -> None:
    """Make the modules that call torch functions themselves batch-invariant."""
    # All modules of the same types, because a short prompt does not reach every expert.
    types = {type(module) for module in callers} - {nn.Linear}
    modules = [module for module in model.modules() if type(module) in types]
    for module in modules:
        _wrap_forward(module, _with_invariant_mode)
    # Outermost and once per child, because a child may be such a module itself, and belong to several.
    for child in dict.fromkeys(child for module in modules for child in _called_by(module)):
        _wrap_forward(child, _without_invariant_mode)


def _called_by(module: nn.Module) -> Iterator[nn.Module]:
    for child in module.children():
        if isinstance(child, nn.ModuleList | nn.ModuleDict):
            yield from _called_by(child)
        else:
            yield child


def _wrap_forward(module: nn.Module, wrapper: Forward) -> None:
    name = _forward_name(module)
    setattr(module, name, partial(wrapper, getattr(module, name)))


def _forward_name(module: nn.Module) -> str:
    """Return the attribute to replace: a hook of accelerate is `forward`, and calls `_old_forward`."""
    return "_old_forward" if hasattr(module, "_hf_hook") else "forward"


def _linear_layer(module: nn.Linear, packed: DecodeWeight | None, rows: Tensor) -> Tensor:
    if packed is None or not IN_DECODE_STEP.get() or rows.numel() < packed.min_rows * rows.shape[-1]:
        add_flop(2 * rows.numel() * len(module.weight))
        return invariant_linear(rows, module.weight, module.bias)
    result = packed.multiply(rows)
    return result if module.bias is None else result + module.bias


def _with_invariant_mode(forward: Forward, *args: Any, **options: Any) -> Any:
    if SINGLE_ROW_PASS.get():
        return forward(*args, **options)
    with BatchInvariantMode():
        return forward(*args, **options)


def _without_invariant_mode(forward: Forward, *args: Any, **options: Any) -> Any:
    """Run a child outside the mode of its parent: it needs none, or enters the mode itself."""
    if not isinstance(_get_current_function_mode(), BatchInvariantMode):
        return forward(*args, **options)
    with _pop_mode_temporarily():
        return forward(*args, **options)
