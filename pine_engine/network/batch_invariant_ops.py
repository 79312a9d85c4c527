"""Products and activations of which each row's bits depend on that row alone.

Whoever promises equal bits must not care where in a prompt a token stands, nor beside which others. On the
CPU, torch's own operations do: a float32 product takes other kernels for other numbers of rows, and cuts rows
and sums between threads; an activation computes the last few elements of each thread's part with other
instructions. Which shapes and thread counts that hits differs between processors and releases, so no rule for
it is written here. Instead each kind of operation is done in the one way in which it cannot matter, as
docs/exactness.md and `verify --self-test` measure:

- float32 products are oneDNN's, of which a row has the same bits among any 2 or more rows, at any place, with
  any number of threads;
- bfloat16 and float16 products are torch's own where the processor multiplies in that dtype; elsewhere their
  emulation is uneven and slow, and they are the float32 products of the same numbers, rounded once;
- elementwise functions are cut into parts that hold whole vectors only.

Nothing here changes what is computed, but for rounding; on a GPU everything is torch's own.
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
from pine_engine.models.packed import PackedWeight
from pine_engine.network.parallel import is_split
from pine_engine.network.threads import torch_num_threads

SIMD_BLOCK = 64
"""Elements of which torch's vectorised loops take a whole number of steps: two registers of AVX-512 in the
narrowest dtype, and a multiple of every other step."""

SINGLE_THREAD_MAX_NUMEL = 16_384
"""Up to how many elements no elementwise function starts a second thread; for most it is twice as many."""

PARALLEL_MIN_NUMEL_PER_THREAD = 32_768
"""From how many elements for each thread on every elementwise function uses all threads, in equal parts."""

UPCAST_CHUNK_NUMEL = 2**21
"""Half-precision weights that are widened to float32 at a time, so that 8 MB are enough."""

HALF = (torch.bfloat16, torch.float16)

PROBE_WEIGHT_SHAPES = ((576, 1536), (1536, 576), (333, 100))
PROBE_BATCH_SIZES = (*range(2, 18), 36, 64, 109, 160)
"""Products of which it is tried whether a row has the same bits in all: weights (out, in), and rows."""

PROBE_KEYS = (17, 100, 700)
PROBE_SEQUENCES = (1, 2, 3, 4)
"""Batched GEMMs of decode attention of which it is tried whether a head has the same bits in all: keys, and
sequences in the batch."""

HAS_ONEDNN: bool = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")

Forward = Callable[..., Any]

SINGLE_ROW_PASS: ContextVar[bool] = ContextVar("is_one_row", default=False)
"""Whether the pass that is running has one row in all, which then needs to be equal to no other."""

IN_DECODE_STEP: ContextVar[bool] = ContextVar("is_step", default=False)
"""Whether the pass that is running is a decoding step, for which packed weights are used if there are any."""


def linear(rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """The product (..., in) by (out, in) to (..., out), plus bias (out,), row by row."""
    use_onednn = HAS_ONEDNN and rows.device.type == weight.device.type == "cpu" and rows.dtype == weight.dtype
    if not use_onednn or not rows.numel():
        return functional.linear(rows, weight, bias)
    is_single_row = rows.numel() == rows.shape[-1]
    if is_single_row and not SINGLE_ROW_PASS.get():
        return linear(torch.cat((rows, rows)), weight, bias)[: len(rows)]
    if rows.dtype == torch.float32:
        return _onednn(rows, weight, bias)
    if rows.dtype in HALF and not is_single_row and not multiplies_in(rows.dtype):
        return _fp32_gemm(rows, weight, bias)
    return functional.linear(rows, weight, bias)


def is_batch_invariant(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether a row has the same bits among any number of 2 or more rows, and with any number of threads, so
    that both may change."""
    if not HAS_ONEDNN or device.type != "cpu":
        return False
    if dtype in HALF and multiplies_in(dtype):
        return native_gemm_is_batch_invariant(dtype, torch.get_num_threads())
    return dtype in (torch.float32, *HALF)


@cache
def native_gemm_is_batch_invariant(dtype: torch.dtype, threads: int) -> bool:
    """Whether that is true of torch's own products on the CPU with one thread or so many, as far as a trial
    tells; tried once.

    A processor that multiplies in a half precision may do it in tiles of rows, and each has its own.
    """
    generator = torch.Generator().manual_seed(0)
    for outputs, inputs in PROBE_WEIGHT_SHAPES:
        weight = torch.randn(outputs, inputs, generator=generator).to(dtype)
        rows = torch.randn(max(PROBE_BATCH_SIZES), inputs, generator=generator).to(dtype)
        whole = functional.linear(rows, weight)
        for count, number in itertools.product(PROBE_BATCH_SIZES, {1, threads}):
            with torch_num_threads(number):
                last = functional.linear(rows[-count:].clone(), weight)
            if not torch.equal(last, whole[-count:]):
                return False
    return True


def decode_attention_threads(query: Tensor, key: Tensor) -> int | None:
    """Return the number of threads for the attention of a decode step; None keeps the current number.

    The same heads are decoded alone and beside those of other sequences, with one thread and with all. Where
    that changes a bit with all threads, attention is computed with one.

    Args:
        query: Queries of the step, (B, H, Q, head_dim); passes of several tokens keep their threads.
        key: Keys of the step, (B, G, Q, head_dim).
    """
    threads = torch.get_num_threads()
    if threads == 1 or query.shape[2] > 1 or query.device.type != "cpu":
        return None
    dtype = torch.promote_types(query.dtype, torch.float32)
    num_kv_heads = key.shape[1]
    shape = (num_kv_heads, query.shape[1] // num_kv_heads, query.shape[3])
    return None if _batched_gemm_is_invariant(*shape, dtype, threads) else 1


@cache
def _batched_gemm_is_invariant(
    num_kv_heads: int, num_queries: int, head_dim: int, dtype: torch.dtype, threads: int
) -> bool:
    """Check whether the batched GEMMs of decode attention are bitwise identical in every batch.

    MKL splits a GEMM between threads where a batch has fewer of them than there are threads, and which
    shapes that changes differs between processors. Tried once for each shape.

    Args:
        num_kv_heads: Key heads of one sequence; batches have a multiple of them.
        num_queries: Queries for each key head.
        head_dim: Dimension of a head.
        dtype: Dtype of the GEMMs.
        threads: Number of threads that is compared with one thread.
    """
    generator = torch.Generator().manual_seed(0)
    num_heads = num_kv_heads * max(PROBE_SEQUENCES)
    query = torch.randn(num_heads, num_queries, head_dim, generator=generator, dtype=dtype)
    vectors = torch.randn(num_heads, max(PROBE_KEYS), head_dim, generator=generator, dtype=dtype)

    def attend(num_keys: int, heads: int) -> tuple[Tensor, Tensor, Tensor]:
        keys = vectors[:heads, :num_keys]
        scores = query[:heads] @ keys.mT
        weighted = scores @ keys
        return scores, weighted, torch.baddbmm(weighted, scores, keys)

    for num_keys in PROBE_KEYS:
        with torch_num_threads(1):
            expected = attend(num_keys, num_heads)
        for sequences in PROBE_SEQUENCES:
            heads = num_kv_heads * sequences
            with torch_num_threads(threads):
                found = attend(num_keys, heads)
            if not all(torch.equal(one, whole[:heads]) for one, whole in zip(found, expected, strict=True)):
                return False
    return True


def _onednn(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    product: Tensor = torch.ops.mkldnn._linear_pointwise(rows, weight, bias, "none", [], "")
    return product


def _fp32_gemm(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    wide, product = rows.float(), rows.new_empty(*rows.shape[:-1], len(weight))
    outputs = max(1, UPCAST_CHUNK_NUMEL // weight.shape[1])
    for first in range(0, len(weight), outputs):
        part = slice(first, first + outputs)
        own_bias = None if bias is None else bias[part].float()
        product[..., part] = _onednn(wide, weight[part].float(), own_bias)
    return product


def invariant_elementwise(function: Callable[[Tensor], Tensor], values: Tensor) -> Tensor:
    """function(values), each element's bits depending on that element alone.

    function: of each element on its own, to the same shape and dtype.
    """
    if values.device.type != "cpu" or not values.is_floating_point():
        return function(values)
    count, threads = values.numel(), torch.get_num_threads()
    step = SIMD_BLOCK * threads if count >= PARALLEL_MIN_NUMEL_PER_THREAD * threads else SIMD_BLOCK
    at_once = count if step > SIMD_BLOCK or threads == 1 else SINGLE_THREAD_MAX_NUMEL
    if count % step == 0 and count <= at_once and values.is_contiguous():
        return function(values)
    flat, whole = values.contiguous().view(-1), count - count % step
    rest = functional.pad(flat[whole:], (0, -count % SIMD_BLOCK))  # shorter than a step, hence of one thread
    parts = [part for part in (*flat[:whole].split(at_once), rest) if len(part)]
    return torch.cat([function(part) for part in parts])[:count].view(values.shape)


def _matmul(rows: Tensor, other: Tensor) -> Tensor:
    """Row by row where one side is a matrix of weights, or a stack of them with rows of its own for each."""
    if other.dim() == 2 and rows.dim() >= 2:
        return linear(rows, other.mT)
    if rows.dim() == other.dim() == 3 and rows.shape[0] == other.shape[0]:
        return torch.stack([linear(*pair) for pair in zip(rows, other.mT, strict=True)])
    return torch.matmul(rows, other)


def _element_by_element(
    function: Callable[..., Tensor], values: Tensor, *args: Any, **options: Any
) -> Tensor:
    in_place = options.pop("inplace", False)
    result = invariant_elementwise(lambda part: function(part, *args, **options), values)
    return values.copy_(result) if in_place else result


_ELEMENTWISE: tuple[Callable[..., Tensor], ...] = (
    *(functional.silu, functional.gelu, functional.mish, functional.softplus, functional.logsigmoid),
    *(functional.elu, functional.selu, functional.celu),
    *(
        getattr(home, name)
        for home in (torch, Tensor)
        for name in ("exp", "expm1", "log", "log1p", "sigmoid", "tanh", "erf", "cos", "sin")
    ),
)
"""Functions of which vectors and single elements can be rounded otherwise."""

_REPLACED: dict[Callable[..., Any], Callable[..., Any]] = {
    functional.linear: linear,
    **dict.fromkeys(
        (
            *(torch.matmul, torch.mm, torch.bmm, Tensor.matmul, Tensor.mm, Tensor.bmm),
            Tensor.__matmul__,
        ),
        _matmul,
    ),
    **{function: partial(_element_by_element, function) for function in _ELEMENTWISE},
}
"""What stands for each of torch's functions while a module runs under BatchInvariantMode."""


class BatchInvariantMode(TorchFunctionMode):
    """Inside, torch's functions are done row by row, whoever calls them in this thread."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        """See TorchFunctionMode."""
        return _REPLACED.get(func, func)(*args, **(kwargs or {}))


class OpCallerRecorder(TorchFunctionMode):
    """Inside, collects the modules that call a function which has to be done row by row."""

    def __init__(self) -> None:
        super().__init__()
        self.modules: dict[nn.Module, None] = {}

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        """See TorchFunctionMode."""
        if func in _REPLACED and (module := _calling_module(sys._getframe(1))):
            self.modules[module] = None
        return func(*args, **(kwargs or {}))


def _calling_module(frame: FrameType | None) -> nn.Module | None:
    while frame is not None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, nn.Module):
            return caller
        frame = frame.f_back
    return None


def patch_linear_layers(model: nn.Module, packed: Mapping[nn.Parameter, PackedWeight]) -> None:
    """Has all plain linear layers of a model of our own computed row by row; packed: of some weights."""
    for module in model.modules():
        if type(module) is nn.Linear and is_split(module):
            _wrap_forward(module, _row_by_row)
        elif type(module) is nn.Linear:
            forward = partial(_linear_layer, module, packed.get(cast(nn.Parameter, module.weight)))
            setattr(module, _forward_name(module), forward)


def patch_op_callers(model: nn.Module, callers: Iterable[nn.Module]) -> None:
    """Has the modules of a model of our own computed row by row that are of a kind with those that "
    "OpCallerRecorder
    has found: a short prompt does not reach every expert of a mixture."""
    kinds = {type(module) for module in callers} - {nn.Linear}
    modules = [module for module in model.modules() if type(module) in kinds]
    for module in modules:
        _wrap_forward(module, _row_by_row)
    # Around all others, because a child may be such a module itself, also of several.
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
    """accelerate's hook, if there is one, stays around it: it calls the forward that it has put aside."""
    return "_old_forward" if hasattr(module, "_hf_hook") else "forward"


def _linear_layer(module: nn.Linear, packed: PackedWeight | None, rows: Tensor) -> Tensor:
    if packed is None or not IN_DECODE_STEP.get():
        return linear(rows, module.weight, module.bias)
    product = packed.multiply(rows)
    return product if module.bias is None else product + module.bias


def _row_by_row(forward: Forward, *args: Any, **options: Any) -> Any:
    if SINGLE_ROW_PASS.get():
        return forward(*args, **options)
    with BatchInvariantMode():
        return forward(*args, **options)


def _without_invariant_mode(forward: Forward, *args: Any, **options: Any) -> Any:
    """A module inside such a one, which need not be computed row by row, or says so itself."""
    if not isinstance(_get_current_function_mode(), BatchInvariantMode):
        return forward(*args, **options)
    with _pop_mode_temporarily():
        return forward(*args, **options)
