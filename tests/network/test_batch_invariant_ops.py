"""Results are bitwise identical for every batch size and number of threads, which are chosen for speed."""

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from pine_engine import Engine, TokenLayout
from pine_engine.attention.ranked import RankedAttention
from pine_engine.network import batch_invariant_ops as ops
from pine_engine.network.batch_invariant_ops import is_batch_invariant
from pine_engine.network.registration import LayerInput
from pine_engine.network.thread_tuner import (
    MAX_SINGLE_THREAD_PROMPT,
    NUM_BASELINE_LAYERS,
    NUM_TRIAL_LAYERS,
    ContentionMonitor,
    ThreadPolicy,
    ThreadTuner,
    attention_threads,
    torch_num_threads,
)
from tests.support.families import TinyLlama
from tests.support.forward import prefill_logits
from tests.support.tiers import first_daily

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
    onednn = ops._onednn

    def count(rows: Tensor, *rest: Any) -> Tensor:
        batch_sizes.append(len(rows))
        return onednn(rows, *rest)

    monkeypatch.setattr(ops, "_onednn", count)
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


@pytest.mark.parametrize(
    ("error", "is_invariant"),
    [
        (lambda rows: 0, True),
        (lambda rows: len(rows) >= 64, False),  # tiles of rows
        (lambda rows: torch.get_num_threads() > 1, False),
    ],
)
def test_native_gemm_test_detects_differences(
    error: Callable[[Tensor], int], is_invariant: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gemm(rows: Tensor, weight: Tensor) -> Tensor:
        return (rows.double() @ weight.double().mT).to(rows.dtype) + error(rows)

    monkeypatch.setattr(functional, "linear", gemm)
    test: Any = ops.native_gemm_is_batch_invariant
    assert test.__wrapped__(torch.bfloat16, 2) == is_invariant


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


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_decode_attention_threads_keep_bitwise_identity(threads: int) -> None:
    for num_kv_heads, group, head_dim in ((1, 4, 16), (1, 7, 64), (2, 5, 20), (3, 3, 64)):
        query, key = normal(4 * num_kv_heads, group, head_dim), normal(4 * num_kv_heads, 333, head_dim)
        with torch_num_threads(1):
            expected = query @ key.mT
        with torch_num_threads(threads):
            shape = (1, num_kv_heads * group, 1, head_dim)
            used = ops.decode_attention_threads(torch.empty(shape), torch.empty(1, num_kv_heads, 1, head_dim))
            for heads in range(num_kv_heads, 4 * num_kv_heads + 1, num_kv_heads):
                with torch_num_threads(used):
                    assert torch.equal(query[:heads] @ key[:heads].mT, expected[:heads])
        with torch_num_threads(threads):  # a prefill keeps them
            assert ops.decode_attention_threads(torch.empty(1, 7, 5, 64), torch.empty(1, 1, 5, 64)) is None


FREE = {True: 0.006, False: 0.008}
BUSY = {True: 0.060, False: 0.008}
"""Seconds of a layer with all threads and with one, as measured on two cores."""

SHORT = TokenLayout((5, 9, 3), ((11, 12, 13), (21, 22), (31, 32, 33, 34)), (51, 52))
LONG = TokenLayout((5,) * MAX_SINGLE_THREAD_PROMPT, ((1, 2), (3, 4)), (7,))


@pytest.fixture
def two_threads() -> Iterator[None]:
    with torch_num_threads(2):
        yield


class Machine:
    def __init__(self) -> None:
        self.now = 0.0
        self.monitor = ContentionMonitor()

    def compute(self, policy: ThreadPolicy, num_layers: int, *seconds: dict[bool, float]) -> Sequence[bool]:
        choices = []
        for times in itertools.islice(itertools.cycle(seconds), num_layers):
            choices.append(policy.should_use_all(self.now))
            self.now += times[choices[-1]]
            policy.record(choices[-1], times[choices[-1]], self.now)
        return choices


@pytest.mark.parametrize("busy", [[BUSY], [FREE, FREE, FREE, BUSY]], ids=["always", "every fourth layer"])
def test_contention_costs_little_and_free_cores_are_used(busy: list[dict[bool, float]]) -> None:
    machine = Machine()
    policy = ThreadPolicy(machine.monitor)
    choices = machine.compute(policy, 3000, FREE)
    assert choices == [False] * NUM_BASELINE_LAYERS + [True] * (3000 - NUM_BASELINE_LAYERS)
    started = machine.now
    machine.compute(policy, 1000, *busy)
    assert machine.now - started <= 1.1 * 1000 * BUSY[False]
    assert all(machine.compute(policy, 3000, FREE)[-1500:])


def test_contention_is_shared_by_all_kinds_of_layers() -> None:
    machine = Machine()
    first, second = ThreadPolicy(machine.monitor), ThreadPolicy(machine.monitor)
    for policy in (first, second):
        machine.compute(policy, 100, FREE)
    machine.compute(first, 1, BUSY)
    assert machine.compute(second, 10, BUSY) == [False] * 10


def test_trials_without_gain_become_rare() -> None:
    machine = Machine()
    choices = machine.compute(ThreadPolicy(machine.monitor), 10_000, {True: 0.0062, False: 0.006})
    # At the start; after 200, 400, 800, 1600, and from then on 3200 layers.
    assert sum(choices) == 7 * NUM_TRIAL_LAYERS


def test_trial_with_gain_resets_pause_and_interval() -> None:
    machine = Machine()
    policy = ThreadPolicy(machine.monitor)
    machine.compute(policy, 1000, {True: 0.0062, False: 0.006})
    machine.compute(policy, 1000, FREE)
    fresh = ThreadPolicy(ContentionMonitor())
    assert (policy.retry_interval, machine.monitor.pause) == (fresh.retry_interval, fresh.monitor.pause)
    machine.compute(policy, 1, BUSY)
    assert machine.monitor.pause == 2 * fresh.monitor.pause


def test_layers_are_timed_and_threads_restored(two_threads: None) -> None:
    """Every layer takes a second with one thread and half a second with two."""
    now = 0.0
    tuner = ThreadTuner(lambda: now)
    layers: list[float] = []
    threads: list[list[int]] = []
    for _ in range(2):
        with tuner.step(4, layers.append) as begin_layer:
            threads.append([])
            for _ in range(20):
                begin_layer(0)
                threads[-1].append(torch.get_num_threads())
                now += 1 / torch.get_num_threads()
            now += 100  # after the last layer
        assert torch.get_num_threads() == 2
    assert threads == [[1] * NUM_BASELINE_LAYERS + [2] * (20 - NUM_BASELINE_LAYERS), [2] * 20]

    with pytest.raises(KeyboardInterrupt), tuner.step(2, layers.append):
        torch.set_num_threads(1)
        raise KeyboardInterrupt
    assert torch.get_num_threads() == 2
    with torch_num_threads(1), tuner.step(4, layers.append) as begin_layer:
        begin_layer(0)
        assert torch.get_num_threads() == 1


@pytest.mark.parametrize(
    ("num_tokens", "num_baseline"),
    [(MAX_SINGLE_THREAD_PROMPT, NUM_BASELINE_LAYERS), (MAX_SINGLE_THREAD_PROMPT + 1, 0)],
)
def test_long_prompt_begins_with_all_threads(two_threads: None, num_tokens: int, num_baseline: int) -> None:
    now, threads, layers = 0.0, list[int](), list[float]()
    with ThreadTuner(lambda: now).prompt("pine", num_tokens, layers.append) as begin_layer:
        for layer in range(30):
            begin_layer(layer)
            threads.append(torch.get_num_threads())
            now += 0.01 / torch.get_num_threads()
    assert threads == [1] * num_baseline + [2] * (30 - num_baseline) and layers == list(range(30))


@pytest.mark.parametrize("dtype", first_daily([torch.bfloat16, torch.float32]), ids=str)
def test_number_of_threads_changes_no_logit(
    dtype: torch.dtype, tiny_llama: TinyLlama, two_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_batch_invariant(dtype, torch.device("cpu")):
        pytest.skip("GEMMs of this processor depend on the batch size, so threads are not tuned")
    model: Any = tiny_llama(layers=3, heads=8, kv_heads=4, head_dim=64)
    engine = Engine(model.to(dtype))
    turns, num_choices = itertools.cycle([True, False]), 0

    def run(choose: Callable[..., bool]) -> dict[str, torch.Tensor]:
        monkeypatch.setattr(ThreadPolicy, "should_use_all", choose)
        methods = ["vanilla", "pcw", "sp", "pine", "pine_input_order"]
        return engine.run(
            SHORT, methods=methods, max_new_tokens=4, stop_at_eos=False, return_logits=True
        ).logits

    def in_turns(*_: object) -> bool:
        nonlocal num_choices
        num_choices += 1
        return next(turns)

    expected, mixed, single = run(lambda *_: True), run(in_turns), run(lambda *_: False)
    assert num_choices >= (3 + 4) * 3  # layers of three steps, and of four prompts, because SP reuses PCW's
    for method, logits in expected.items():
        assert torch.equal(mixed[method], logits) and torch.equal(single[method], logits), method


def test_attention_threads_depend_on_prompt_length_only(
    tiny_llama: TinyLlama, two_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(tiny_llama())
    attend = RankedAttention.prefill
    used: set[tuple[int, int]] = set()

    def observe(self: RankedAttention, inputs: LayerInput, *rest: Any) -> Any:
        used.add((inputs.query.shape[1], torch.get_num_threads()))
        return attend(self, inputs, *rest)

    monkeypatch.setattr(RankedAttention, "prefill", observe)
    for use_all in (True, False):
        monkeypatch.setattr(ThreadPolicy, "should_use_all", lambda *_, use_all=use_all: use_all)
        for layout in (SHORT, LONG):
            prefill_logits(engine, layout, "pine")
    assert used == {(SHORT.num_tokens, 1), (LONG.num_tokens, 2)}
    # Another limit would change logits of prompts between the two.
    assert (attention_threads(256), attention_threads(257)) == (1, 2)
