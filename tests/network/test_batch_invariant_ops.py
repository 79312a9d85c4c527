"""Products and activations of which each row's bits depend on that row alone, at many thread counts."""

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from pine_engine.network import batch_invariant_ops
from pine_engine.network.batch_invariant_ops import (
    SINGLE_ROW_PASS,
    BatchInvariantMode,
    OpCallerRecorder,
    decode_attention_threads,
    invariant_elementwise,
    linear,
    patch_op_callers,
)
from pine_engine.network.thread_tuner import torch_num_threads

THREADS = (1, 2, 3, 4, 6, 12)

HALF = (torch.bfloat16, torch.float16)


@pytest.fixture(params=THREADS)
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    with torch_num_threads(request.param):
        yield request.param


def normal(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, *HALF], ids=str)
@pytest.mark.parametrize(("inner", "outer"), [(576, 192), (203, 97), (2048, 512), (33, 1), (65, 1000)])
@pytest.mark.usefixtures("threads")
def test_a_row_has_the_same_bits_among_any_others(inner: int, outer: int, dtype: torch.dtype) -> None:
    weight, bias, rows = (
        normal(outer, inner, dtype=dtype),
        normal(outer, dtype=dtype),
        normal(77, inner, dtype=dtype),
    )
    whole = linear(rows, weight, bias)
    pick = random.Random(inner)
    for count in (2, 3, 5, 8, 11, 13, 40, 77):
        chosen = pick.sample(range(77), count)
        assert torch.equal(linear(rows[chosen], weight, bias), whole[chosen])
    torch.testing.assert_close(whole, functional.linear(rows, weight, bias), rtol=2e-2, atol=2e-2)


def test_torchs_own_products_do_know_their_row() -> None:
    """The control: at one of these shapes and thread counts, or this file shows nothing."""
    weight, rows = normal(192, 576), normal(64, 576)
    shuffled = torch.randperm(64, generator=torch.Generator().manual_seed(0))
    uneven = []
    for count in THREADS:
        with torch_num_threads(count):
            moved = functional.linear(rows[shuffled], weight)
            uneven.append(not torch.equal(moved, functional.linear(rows, weight)[shuffled]))
    if not any(uneven):
        pytest.skip("this processor's own products are even at these shapes")


def test_one_row_is_computed_as_among_others_unless_it_is_all_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    weight, rows = normal(97, 203), normal(5, 203)
    assert torch.equal(linear(rows[3:4], weight), linear(rows, weight)[3:4])
    given: list[int] = []
    product = batch_invariant_ops._onednn

    def counted(rows: Tensor, *rest: Any) -> Tensor:
        given.append(len(rows))
        return product(rows, *rest)

    monkeypatch.setattr(batch_invariant_ops, "_onednn", counted)
    token = SINGLE_ROW_PASS.set(True)
    try:
        torch.testing.assert_close(linear(rows[3:4], weight), functional.linear(rows[3:4], weight))
    finally:
        SINGLE_ROW_PASS.reset(token)
    assert given == [1]


def test_products_have_the_shape_of_torchs_own() -> None:
    weight = normal(7, 4)
    for shape in ((3, 4), (1, 4), (2, 3, 4), (1, 1, 4), (0, 4), (2, 0, 4)):
        assert linear(normal(*shape), weight).shape == (*shape[:-1], 7)


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_half_precision_is_rounded_once_however_the_weights_are_cut(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_invariant_ops, "multiplies_in", lambda _: False)
    rows, weight, bias = (normal(*shape, dtype=dtype) for shape in ((9, 64), (50, 64), (50,)))
    exact = functional.linear(rows.double(), weight.double(), bias.double()).to(dtype)
    whole = linear(rows, weight, bias)
    torch.testing.assert_close(whole, exact, rtol=1e-2 if dtype == torch.bfloat16 else 2e-3, atol=1e-3)
    monkeypatch.setattr(batch_invariant_ops, "UPCAST_CHUNK_NUMEL", 64 * 16)
    assert torch.equal(linear(rows, weight, bias), whole)


def test_own_products_are_even_where_no_row_tells_how_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def in_tiles(rows: Tensor, weight: Tensor) -> Tensor:
        return (rows.double() @ weight.double().mT).to(rows.dtype) + (len(rows) >= 64)

    def by_threads(rows: Tensor, weight: Tensor) -> Tensor:
        return (rows.double() @ weight.double().mT).to(rows.dtype) + (torch.get_num_threads() > 1)

    def even(rows: Tensor, weight: Tensor) -> Tensor:
        return (rows.double() @ weight.double().mT).to(rows.dtype)

    def tried(product: Callable[[Tensor, Tensor], Tensor]) -> bool:
        monkeypatch.setattr(functional, "linear", product)
        return batch_invariant_ops.native_gemm_is_batch_invariant.__wrapped__(torch.bfloat16, 2)

    assert tried(even) and not tried(in_tiles) and not tried(by_threads)


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": functional.silu,
    "gelu, tanh": lambda values: functional.gelu(values, approximate="tanh"),
    "gelu": functional.gelu,
    "sigmoid": torch.sigmoid,
    "softplus": functional.softplus,
    "cos": torch.cos,
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.usefixtures("threads")
def test_a_function_of_elements_does_not_know_their_place(name: str) -> None:
    function = FUNCTIONS[name]
    for rows, width in ((1, 24), (8, 203), (37, 203), (101, 1536), (300, 2048), (13, 16384)):
        values = normal(rows, 2 * width)[:, :width]
        order = torch.randperm(rows, generator=torch.Generator().manual_seed(rows))
        result = invariant_elementwise(function, values)
        assert torch.equal(invariant_elementwise(function, values[order]), result[order])
        assert torch.equal(invariant_elementwise(function, values.clone()), result)
        torch.testing.assert_close(result, function(values))


def test_nothing_is_cut_where_all_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """The usual widths cost nothing: the function is called once, with the values as they are."""
    given: list[Tensor] = []
    values = normal(8, 1536)

    def same(part: Tensor) -> Tensor:
        given.append(part)
        return part

    invariant_elementwise(same, values)
    assert len(given) == 1 and given[0] is values


class Gate(nn.Module):
    """As routers and gated layers do, it calls torch's functions itself."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(normal(3, 8))
        self.inner = nn.Sequential(nn.Linear(8, 8), nn.ReLU())

    def forward(self, rows: Tensor) -> Tensor:
        return torch.sigmoid(functional.linear(self.inner(rows), self.weight)) + rows @ self.weight.T


def test_modules_that_call_torch_themselves_are_found_and_computed_row_by_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate, calls = Gate(), []
    model = nn.Sequential(gate, nn.LayerNorm(3))
    with OpCallerRecorder() as callers:
        expected = model(normal(5, 8))
    assert list(callers.modules) == [gate.inner[0], gate]
    patch_op_callers(model, callers.modules)
    own = batch_invariant_ops._REPLACEMENTS[functional.linear]

    def counted(*args: Any) -> Any:
        calls.append(len(args))
        return own(*args)

    monkeypatch.setitem(batch_invariant_ops._REPLACEMENTS, functional.linear, counted)
    torch.testing.assert_close(model(normal(5, 8)), expected)
    assert calls == [2]  # not that of the layer inside, which is a module of its own


class Experts(nn.Module):
    """As mixtures do: a prompt reaches only some of them, and each has a gate that calls torch itself."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList([Gate(), Gate()])
        self.act = nn.GELU()

    def forward(self, rows: Tensor, expert: int = 0) -> Tensor:
        return functional.silu(self.act(self.experts[expert](rows)))


def test_what_a_short_prompt_does_not_reach_is_computed_row_by_row_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And so is a module that calls torch inside of another one that does."""
    model = Experts()
    with OpCallerRecorder() as callers:
        model(normal(5, 8))
    patch_op_callers(model, callers.modules)
    calls: list[str] = []

    def told(name: str, own: Callable[..., Any], *args: Any, **options: Any) -> Any:
        calls.append(name)
        return own(*args, **options)

    for function in (torch.sigmoid, functional.gelu, functional.silu):
        own = batch_invariant_ops._REPLACEMENTS[function]
        monkeypatch.setitem(
            batch_invariant_ops._REPLACEMENTS, function, partial(told, function.__name__, own)
        )
    model(normal(5, 8), expert=1)
    assert calls == ["sigmoid", "gelu", "silu"]


def test_inside_a_row_by_row_module_stacked_products_are_stacks_of_linear_layers() -> None:
    rows, stacked = normal(4, 5, 8), normal(4, 8, 3)
    with BatchInvariantMode():
        product = torch.bmm(rows, stacked)
    assert torch.equal(product, torch.stack([linear(*pair) for pair in zip(rows, stacked.mT, strict=True)]))


def test_a_function_that_writes_in_place_still_does() -> None:
    values = normal(3, 5)
    expected = invariant_elementwise(functional.silu, values)
    with BatchInvariantMode():
        result = functional.silu(values, inplace=True)
    assert result is values and torch.equal(values, expected)


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_decode_attention_threads_keep_bitwise_identity(threads: int) -> None:
    for num_kv_heads, group, head_dim in ((1, 4, 16), (1, 7, 64), (2, 5, 20), (3, 3, 64)):
        query, key = normal(4 * num_kv_heads, group, head_dim), normal(4 * num_kv_heads, 333, head_dim)
        with torch_num_threads(1):
            expected = query @ key.mT
        with torch_num_threads(threads):
            shape = (1, num_kv_heads * group, 1, head_dim)
            used = decode_attention_threads(torch.empty(shape), torch.empty(1, num_kv_heads, 1, head_dim))
            for heads in range(num_kv_heads, 4 * num_kv_heads + 1, num_kv_heads):
                with torch_num_threads(used):
                    assert torch.equal(query[:heads] @ key[:heads].mT, expected[:heads])


def test_decode_attention_threads_of_a_prefill_are_kept() -> None:
    with torch_num_threads(2):
        assert decode_attention_threads(torch.empty(1, 7, 5, 64), torch.empty(1, 1, 5, 64)) is None
