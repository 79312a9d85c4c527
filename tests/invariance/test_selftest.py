"""The self-test passes on this machine, and each check fails if its property is broken."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pine_engine import Engine, Trace
from pine_engine.attention import arithmetic, forward
from pine_engine.benchmark.shapes import DEMANDING, load_engine, synthetic_model
from pine_engine.invariance import kernel_checks, selftest
from pine_engine.invariance.kernel_checks import GEMM_ROWS, Check
from pine_engine.invariance.selftest import INVARIANT, MIXED_PROMPTS, PUBLISHED, prompts
from pine_engine.methods.table import METHODS
from pine_engine.network import rope
from pine_engine.network.batch_invariant_ops import IN_DECODE_STEP
from pine_engine.network.batched_gemm import batched_gemm
from pine_engine.network.thread_tuner import torch_num_threads
from tests.support.forward import unpadded_gemm
from tests.support.native_gemm import gemm_by_rows, simulate_native_gemm
from tests.support.tiers import first_daily


@pytest.fixture(scope="module")
def engine() -> Engine:
    return load_engine("random:tiny")


@contextmanager
def hooked(engine: Engine, hook: Callable[..., Tensor]) -> Iterator[None]:
    with engine.patched_models[0].network.model.layers[0].mlp.down_proj.register_forward_hook(hook):
        yield


@pytest.mark.slow
def test_self_test_covers_models(engine: Engine) -> None:
    checks = {check.name: check for check in (run() for run in selftest.plan_checks(engine, shuffles=1))}
    assert [name for name, check in checks.items() if not check.holds] == []
    models = ("tiny model", "random:tiny", *(f"tiny model, {label}" for label in DEMANDING.values()))
    labels = (*MIXED_PROMPTS, "batch neighbors", "stacked sequences")
    assert set(checks) == {
        *(f"{model}: {label}" for model in models for label in labels),
        *(f"tiny model: {label}" for label in prompts(97)),
        *(f"{model}: control, vanilla changes" for model in ("tiny model", "random:tiny")),
        *("tiny model: exact ties of importance", "linear layers", "activations and norms"),
        "mixture of experts",
        *("fused attention", "determinism"),
    }
    for model, methods in (("tiny model", INVARIANT), ("random:tiny", PUBLISHED)):
        assert checks[f"{model}: documents of many lengths"].found.startswith(
            f"{len(methods)} methods, 2 orders"
        )


def test_self_test_checks_packed_weights_in_4bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selftest, "DEMANDING", {})
    model = synthetic_model("random:tiny", dtype="float32", device="cpu")
    for decode_in_4bit in (True, False):
        planned: list[Any] = selftest.plan_checks(Engine(model, decode_in_4bit=decode_in_4bit), shuffles=1)
        assert (kernel_checks.check_packed in [check.func for check in planned]) == decode_in_4bit


PLACED = [name for name in INVARIANT if METHODS[name].has_plan]
"""Invariant methods that read the documents in the input order; a layer cannot break the others."""


def test_check_orders_index_dependent_layer_fails(engine: Engine) -> None:
    layout = prompts(97)["documents of many lengths"]

    def nudge(_: Any, __: Any, output: Tensor) -> Tensor:
        indices = torch.arange(output.shape[1])[:, None]
        return output + output.abs() * 1e-5 * (indices % 5 == 0)

    with hooked(engine, nudge):
        check = selftest.check_orders(engine, layout, PLACED, "nudged", shuffles=2)
    assert check.verdict == "FAIL" and f"{len(PLACED)} methods, 3 orders, 99 tokens" in check.found
    assert all(f"{method} (up to " in check.found for method in PLACED)


def test_check_batch_neighbors_batch_dependent_layer_fails(engine: Engine) -> None:
    def nudge(_: Any, __: Any, output: Tensor) -> Tensor:
        return output * (1 + 1e-6 * (len(output) > 2))

    with hooked(engine, nudge):
        check = selftest.check_batch_neighbors(engine)
    assert not check.holds and all(f"batch {index} (up to " in check.found for index in (2, 3))
    assert check.found.count(" (up to ") == 2


Gemm = Callable[..., Tensor]
Patches = dict[Any, dict[str, Any]]


def is_split(*_: Tensor) -> bool:
    return torch.get_num_threads() > 1


def is_vector(rows: Tensor, columns: Tensor) -> bool:
    return 1 in (rows.shape[-2], columns.shape[-1])


def simulated(gemm: Gemm, has_other_kernel: Callable[..., bool]) -> Gemm:
    """Return a GEMM with another kernel for one sequence, whose number of heads is odd, than for two."""

    def multiply(rows: Tensor, columns: Tensor, *added: Tensor) -> Tensor:
        is_other = len(rows) % 2 == 1 and has_other_kernel(rows, columns)
        return gemm(rows, columns, *added) * (1 + 1e-5 * is_other)

    return multiply


def patch(monkeypatch: pytest.MonkeyPatch, patches: Patches) -> None:
    for module, names in patches.items():
        for name, value in names.items():
            monkeypatch.setattr(module, name, value)


SPLIT: Patches = {
    arithmetic: {"batched_gemm": simulated(batched_gemm, is_split)},
    forward: {"decode_attention_threads": lambda *_: 1},
}
UNPADDED: Patches = {arithmetic: {"batched_gemm": simulated(unpadded_gemm, is_vector)}}


@pytest.mark.parametrize(
    ("shape", "threads", "processor", "broken"),
    first_daily(
        [
            ("seven-queries", 2, SPLIT, {forward: {"decode_attention_threads": lambda *_: None}}),
            ("seven-queries", 1, {}, UNPADDED),  # a single column
            ("unaligned-heads", 2, {}, UNPADDED | {rope: {"ALIGNED_DIMS": 1}}),  # a single row
        ]
    ),
    ids=["split", "column", "row"],
)
def test_check_stacking_needs_invariant_attention(
    shape: str, threads: int, processor: Patches, broken: Patches, monkeypatch: pytest.MonkeyPatch
) -> None:
    with torch_num_threads(threads):
        assert selftest.check_stacking(load_engine(f"random:{shape}")).holds
        patch(monkeypatch, processor)
        assert selftest.check_stacking(load_engine(f"random:{shape}")).holds
        patch(monkeypatch, broken)
        assert not selftest.check_stacking(load_engine(f"random:{shape}")).holds


def test_check_control_unchanged_vanilla_fails(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert selftest.check_control(engine).holds
    monkeypatch.setattr(selftest, "sample_orders", lambda count, *_: [tuple(range(count))] * 2)
    assert not selftest.check_control(engine).holds


def test_without_keys_ties_importance_exactly() -> None:
    tied = Engine(selftest.without_keys(synthetic_model("random:tiny", dtype="float32", device="cpu")))
    layout = prompts(97)["documents of equal length"]
    trace: Trace = tied.run(layout, methods=["pine"], max_new_tokens=2, trace=True).traces["pine"]
    importance = trace.suffix_importance
    assert importance is not None and importance.shape[-1] == 4
    assert (importance == importance[..., :1]).all()
    assert len(set(layout.documents)) == 4


CPU = torch.device("cpu")


def check(function: Callable[[Tensor], Tensor], *counts: int, width: int = 8) -> Check:
    return kernel_checks.check_rows("rows", [("layer", width, function)], counts, torch.float32, CPU)


def test_check_rows_index_dependent_layer_fails() -> None:
    def change_last(rows: Tensor) -> Tensor:
        result = rows * 2
        if len(rows) >= 12:
            result[-1] = torch.nextafter(result[-1], result[-1] + 1)
        return result

    failed = check(change_last, *GEMM_ROWS)
    assert (failed.verdict, failed.holds) == ("FAIL", False)
    found = [count for count in GEMM_ROWS if f"({count} x 8)" in failed.found]
    assert found == [count for count in GEMM_ROWS if count >= 12]
    assert check(lambda rows: rows * 2, *GEMM_ROWS).verdict == "pass"
    for nudge in torch.eye(5)[:, :, None] * 1e-3:
        assert not check(nudge.add, 5).holds


def test_linear_layers_show_other_sums_in_bfloat16() -> None:
    """One bfloat16 result of some thousand changes with random numbers, and most with sums that cancel."""
    layer = nn.Linear(64, 7, dtype=torch.bfloat16)

    def by_index(rows: Tensor) -> Tensor:
        parts = [gemm_by_rows(part, layer.weight, layer.bias) for part in rows.split((6, 2))]
        return torch.cat(parts)

    layer.forward = by_index  # type: ignore[method-assign, assignment]  # simulates a processor
    layers = kernel_checks.linear_layers(layer)
    assert not kernel_checks.check_rows("rows", layers, (8,), torch.bfloat16, CPU).holds


@pytest.mark.slow
@pytest.mark.parametrize("in_blocks", [True, False])
def test_check_experts_needs_blocks(in_blocks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    simulate_native_gemm(monkeypatch, in_blocks=in_blocks)
    network = load_engine("random:experts", dtype="bfloat16").patched_models[0].network
    (name, width, mix), *others = kernel_checks.expert_layers(network)
    assert (name, width, others) == ("MixtralSparseMoeBlock", 768, [])
    step = kernel_checks.in_decode_steps([(name, width, mix)])
    for layers in ([(name, width, mix)], step):
        check = kernel_checks.check_experts(layers, torch.bfloat16, CPU)
        assert check.holds == in_blocks, check.found
    assert step[0][0].endswith("decode steps") and not IN_DECODE_STEP.get()


def test_check_packed_batch_dependent_layer_fails(engine: Engine) -> None:
    layers = kernel_checks.linear_layers(engine.patched_models[0].network, is_packed=True)
    assert kernel_checks.check_packed(layers).holds
    failed = kernel_checks.check_packed([("layer", 8, lambda rows: rows * (1 + 1e-6 * (len(rows) == 36)))])
    assert not failed.holds and "(36 x 8)" in failed.found and "(2 x 8)" not in failed.found


def test_layers_cover_shapes_of_model(engine: Engine) -> None:
    network = engine.patched_models[0].network
    linear = kernel_checks.linear_layers(network)
    # q and o, k and v, gate and up, down, lm_head
    shapes = sorted((width, function(torch.ones(1, width)).shape[-1]) for _, width, function in linear)
    assert shapes == [(64, 32), (64, 64), (64, 97), (64, 128), (128, 64)]
    elementwise = sorted(layer[:2] for layer in kernel_checks.elementwise_layers(network))
    assert elementwise == [("LlamaRMSNorm", 64), ("SiLUActivation", 128)]
    assert {width for _, width, _ in kernel_checks.linear_layers(network, is_packed=True)} == {64, 128}
    assert set(range(2, 17)) < set(GEMM_ROWS)
    assert {12, 13, 300, 301} < set(kernel_checks.ELEMENTWISE_ROWS)  # even and odd, short and long
    biased = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4, bias=False))
    assert len(kernel_checks.linear_layers(biased)) == 2


def test_check_fused_attention_offset_dependence_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    attention = torch.nn.functional.scaled_dot_product_attention

    def depend_on_address(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
        assert query.any() and key.any() and value.any()
        output: Tensor = attention(query, key, value, **options)
        return output + 1e-3 * (query.storage_offset() > 0)

    monkeypatch.setattr(kernel_checks, "scaled_dot_product_attention", depend_on_address)
    assert kernel_checks.check_fused_attention(torch.float32, CPU).holds
    monkeypatch.setattr(kernel_checks, "copied", lambda rows: rows)
    failed = kernel_checks.check_fused_attention(torch.float32, CPU)
    assert not failed.holds
    for words in ("1 tokens, 4 heads of 32", "140 tokens, 1 heads of 40", "23 tokens, 3 heads of 24"):
        assert words in failed.found


def test_check_determinism_changing_result_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    assert kernel_checks.check_determinism(torch.float32, CPU).holds
    argsort, calls = torch.argsort, iter(range(99))
    monkeypatch.setattr(torch, "argsort", lambda *args, **options: argsort(*args, **options) + next(calls))
    failed = kernel_checks.check_determinism(torch.float32, CPU)
    assert not failed.holds and failed.found.endswith("for argsort")
