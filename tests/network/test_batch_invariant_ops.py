"""Results are bitwise identical for every batch size and number of threads, which are chosen for speed."""

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from pine_engine.network import batch_invariant_ops as ops
from pine_engine.network.batch_invariant_ops import is_batch_invariant
from pine_engine.network.thread_tuner import torch_num_threads
from tests.support.native_gemm import gemm_by_rows, simulate_native_gemm, skip_unless_batch_invariant

THREADS = (1, 2, 3, 4, 6, 12)

HALF_PRECISION = (torch.bfloat16, torch.float16)


@pytest.fixture(params=THREADS)
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    with torch_num_threads(request.param):
        yield request.param


def normal(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


Halved = type("Halved", (Tensor,), {"dequantize": lambda halves: 2 * halves.as_subclass(Tensor)})
"""Weights stored as halves, as a tensor of torchao or quanto is stored in steps."""


@pytest.mark.parametrize("kind", [nn.Linear, type("QLinear", (nn.Linear,), {})])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_quantized_weights_are_multiplied_as_dense(kind: type[nn.Linear], dtype: torch.dtype) -> None:
    layer, rows = kind(48, 32), torch.randn(5, 48)
    halves = (layer.weight.data / 2).to(dtype)
    expected = ops.invariant_linear(rows, 2 * halves.float(), layer.bias)
    layer.weight = nn.Parameter(halves.as_subclass(Halved), requires_grad=False)
    ops.patch_linear_layers(layer, {})
    assert torch.equal(layer(rows), expected)


@pytest.mark.parametrize("dtype", [torch.float32, *HALF_PRECISION], ids=str)
@pytest.mark.parametrize(("inner", "outer"), [(576, 192), (203, 97), (2048, 512), (33, 1), (65, 1000)])
@pytest.mark.usefixtures("threads")
def test_linear_is_batch_invariant(inner: int, outer: int, dtype: torch.dtype) -> None:
    skip_unless_batch_invariant(dtype)
    shapes = (outer, inner), (outer,), (77, inner)
    weight, bias, rows = (normal(*shape, dtype=dtype) for shape in shapes)
    expected = ops.invariant_linear(rows, weight, bias)
    pick = random.Random(inner)
    for batch_size in (1, 2, 3, 5, 8, 11, 13, 40, 77):
        batch = pick.sample(range(77), batch_size)
        assert torch.equal(ops.invariant_linear(rows[batch], weight, bias), expected[batch])
    torch.testing.assert_close(expected, functional.linear(rows, weight, bias), rtol=2e-2, atol=2e-2)


def test_single_row_is_doubled_outside_single_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    weight, row = normal(97, 203), normal(1, 203)
    batch_sizes: list[int] = []
    onednn = ops.onednn_gemm

    def count(rows: Tensor, *rest: Any) -> Tensor:
        batch_sizes.append(len(rows))
        return onednn(rows, *rest)

    monkeypatch.setattr(ops, "onednn_gemm", count)
    ops.invariant_linear(row, weight)
    token = ops.SINGLE_ROW_PASS.set(True)
    try:
        torch.testing.assert_close(ops.invariant_linear(row, weight), functional.linear(row, weight))
    finally:
        ops.SINGLE_ROW_PASS.reset(token)
    assert batch_sizes == [2, 1]


def test_linear_keeps_leading_dimensions() -> None:
    weight = normal(7, 4)
    for shape in ((3, 4), (1, 4), (2, 3, 4), (1, 1, 4), (0, 4), (2, 0, 4)):
        assert ops.invariant_linear(normal(*shape), weight).shape == (*shape[:-1], 7)


@pytest.mark.parametrize("dtype", HALF_PRECISION, ids=str)
def test_fp32_gemm_rounds_once_in_any_chunks(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops, "multiplies_in", lambda _: False)
    rows, weight, bias = (normal(*shape, dtype=dtype) for shape in ((9, 64), (50, 64), (50,)))
    exact = functional.linear(rows.double(), weight.double(), bias.double()).to(dtype)
    expected = ops.invariant_linear(rows, weight, bias)
    torch.testing.assert_close(expected, exact, rtol=1e-2 if dtype == torch.bfloat16 else 2e-3, atol=1e-3)
    monkeypatch.setattr(ops, "UPCAST_CHUNK_NUMEL", 64 * 16)
    assert torch.equal(ops.invariant_linear(rows, weight, bias), expected)


@pytest.mark.parametrize("is_step", [False, True])
@pytest.mark.parametrize("dtype", HALF_PRECISION, ids=str)
def test_native_gemm_has_one_number_of_rows(
    dtype: torch.dtype, is_step: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, weight = ops.cancelling_rows(140, 64, dtype), ops.cancelling_weight(50, 64, dtype)
    bias = normal(50, dtype=dtype)
    assert not torch.equal(gemm_by_rows(rows[:3], weight), gemm_by_rows(rows, weight)[:3])
    sizes: set[int] = set()

    def gemm(part: Tensor, *rest: Any) -> Tensor:
        sizes.add(len(part))
        return gemm_by_rows(part, *rest)

    simulate_native_gemm(monkeypatch, gemm)
    token = ops.IN_DECODE_STEP.set(is_step)
    try:
        expected = ops.invariant_linear(rows, weight)
        for count in (1, 2, 3, 31, 32, 33, 128, 129):
            assert torch.equal(ops.invariant_linear(rows[-count:], weight), expected[-count:])
        shifted = ops.invariant_linear(rows, weight, bias)
    finally:
        ops.IN_DECODE_STEP.reset(token)
    assert sizes == {ops.DECODE_BLOCK if is_step else ops.PREFILL_BLOCK}
    torch.testing.assert_close(shifted, bias.expand_as(shifted), rtol=1e-2, atol=1e-2)


def sum_in_parts(rows: Tensor, weight: Tensor, num_parts: int) -> Tensor:
    parts = zip(
        rows.float().tensor_split(num_parts, 1), weight.float().tensor_split(num_parts, 1), strict=True
    )
    return torch.stack([one @ other.mT for one, other in parts]).sum(0).to(rows.dtype)


@pytest.mark.parametrize("dtype", HALF_PRECISION, ids=str)
def test_cancelling_sums_show_another_order(dtype: torch.dtype) -> None:
    for num_outputs, num_inputs in ops.PROBE_WEIGHT_SHAPES:
        rows, weight = (
            ops.cancelling_rows(32, num_inputs, dtype),
            ops.cancelling_weight(num_outputs, num_inputs, dtype),
        )
        assert not (rows.double() @ weight.double().mT).any()
        usual = normal(32, num_inputs, dtype=dtype), normal(num_outputs, num_inputs, dtype=dtype, seed=1)
        changed, changed_of_usual = (
            (sum_in_parts(*operands, 1) != sum_in_parts(*operands, 2)).float().mean()
            for operands in ((rows, weight), usual)
        )
        assert changed > 0.2 > 0.02 > changed_of_usual


@pytest.mark.parametrize(
    ("num_parts", "is_invariant"),
    [
        (lambda rows: torch.ones(len(rows)), True),
        (lambda rows: torch.full((len(rows),), 1 + (len(rows) > 32)), True),
        (lambda rows: 1 + (torch.arange(len(rows)) >= 64), False),
        (lambda rows: 1 + (torch.arange(len(rows)) == 17), False),
        (lambda rows: torch.full((len(rows),), torch.get_num_threads()), False),
    ],
    ids=["one sum", "other sum of more rows", "tiles of rows", "one row", "threads"],
)
def test_probe_of_blocks_detects_other_sums(
    num_parts: Callable[[Tensor], Tensor], is_invariant: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gemm(rows: Tensor, weight: Tensor, _: Tensor | None) -> Tensor:
        sums = {number: sum_in_parts(rows, weight, number) for number in (1, 2)}
        return torch.stack([sums[int(number)][row] for row, number in enumerate(num_parts(rows))])

    simulate_native_gemm(monkeypatch, gemm)
    with torch_num_threads(2):
        assert is_batch_invariant(torch.bfloat16, torch.device("cpu")) == is_invariant


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": functional.silu, "gelu, tanh": lambda values: functional.gelu(values, approximate="tanh"),
    "gelu": functional.gelu, "sigmoid": torch.sigmoid, "softplus": functional.softplus, "cos": torch.cos,
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.usefixtures("threads")
def test_elementwise_is_independent_of_the_index(name: str) -> None:
    function = FUNCTIONS[name]
    for rows, width in ((1, 24), (8, 203), (37, 203), (101, 1536), (300, 2048), (13, 16384)):
        values = normal(rows, 2 * width)[:, :width]
        order = torch.randperm(rows, generator=torch.Generator().manual_seed(rows))
        result = ops.invariant_elementwise(function, values)
        assert torch.equal(ops.invariant_elementwise(function, values[order]), result[order])
        assert torch.equal(ops.invariant_elementwise(function, values.clone()), result)
        torch.testing.assert_close(result, function(values))


def test_elementwise_does_not_split_usual_widths() -> None:
    calls: list[Tensor] = []
    values = normal(8, 1536)

    def record(part: Tensor) -> Tensor:
        calls.append(part)
        return part

    ops.invariant_elementwise(record, values)
    assert len(calls) == 1 and calls[0] is values


class Gate(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(normal(3, 8))
        self.inner = nn.Sequential(nn.Linear(8, 8), nn.ReLU())

    def forward(self, rows: Tensor) -> Tensor:
        return torch.sigmoid(functional.linear(self.inner(rows), self.weight)) + rows @ self.weight.T


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList([Gate(), Gate()])
        self.act = nn.GELU()

    def forward(self, rows: Tensor, expert: int = 0) -> Tensor:
        return functional.silu(self.act(self.experts[expert](rows)))


def test_callers_and_unreached_experts_are_patched(monkeypatch: pytest.MonkeyPatch) -> None:
    model: Any = Experts()
    calls: list[str] = []
    with ops.OpCallerRecorder() as callers:
        expected = model(normal(5, 8))
    reached = model.experts[0]
    assert list(callers.modules) == [reached.inner[0], reached, model.act, model]
    ops.patch_op_callers(model, callers.modules)

    def call(name: str, replacement: Callable[..., Any], *args: Any, **options: Any) -> Any:
        calls.append(name)
        return replacement(*args, **options)

    for function in (functional.linear, torch.sigmoid, functional.gelu, functional.silu):
        replacement = partial(call, function.__name__, ops._REPLACEMENTS[function])
        monkeypatch.setitem(ops._REPLACEMENTS, function, replacement)
    torch.testing.assert_close(model(normal(5, 8)), expected)
    model(normal(5, 8), expert=1)
    # Once per expert: the linear layer inside is a module itself.
    assert calls == 2 * ["linear", "sigmoid", "gelu", "silu"]


def test_batched_gemm_is_a_stack_of_linear_layers() -> None:
    rows, weights = normal(4, 5, 8), normal(4, 8, 3)
    with ops.BatchInvariantMode():
        result = torch.bmm(rows, weights)
    expected = [ops.invariant_linear(*pair) for pair in zip(rows, weights.mT, strict=True)]
    assert torch.equal(result, torch.stack(expected))


def test_in_place_function_stays_in_place() -> None:
    values = normal(3, 5)
    expected = ops.invariant_elementwise(functional.silu, values)
    with ops.BatchInvariantMode():
        result = functional.silu(values, inplace=True)
    assert result is values and torch.equal(values, expected)
