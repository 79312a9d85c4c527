"""Checks of single operations pass where rows are independent, and fail where they are not."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import silu

from pine_engine.benchmark.random_models import load_engine
from pine_engine.engine.engine import Engine
from pine_engine.invariance import kernel_checks
from pine_engine.invariance.kernel_checks import (
    ELEMENTWISE_ROWS,
    GEMM_ROWS,
    Check,
    RowLayer,
    check_determinism,
    check_fused_attention,
    check_packed,
    check_rows,
    elementwise_layers,
    linear_layers,
    packed_layers,
)
from pine_engine.network.threads import with_threads

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def engine() -> Engine:
    return load_engine("random:tiny")


def check(function: Callable[[Tensor], Tensor], *counts: int, width: int = 8) -> Check:
    return check_rows("rows", [RowLayer("layer", width, function)], counts, torch.float32, CPU)


def test_check_rows_index_dependent_layer_fails() -> None:
    def change_last(rows: Tensor) -> Tensor:
        """As a GEMM kernel that computes the last of 12 or more rows in another way."""
        result = rows * 2
        if len(rows) >= 12:
            result[-1] = torch.nextafter(result[-1], result[-1] + 1)
        return result

    failed = check(change_last, *GEMM_ROWS)
    assert (failed.verdict, failed.holds) == ("FAIL", False)
    assert [count for count in GEMM_ROWS if f"({count} x 8)" in failed.found] == [*range(12, 17), 64, 300]
    assert check(lambda rows: rows * 2, *GEMM_ROWS).verdict == "pass"


@pytest.mark.parametrize("index", range(5))
def test_check_rows_moves_every_row(index: int) -> None:
    assert not check(lambda rows: rows + torch.eye(5)[:, index : index + 1] * 1e-3, 5).holds


def test_check_rows_thread_dependent_activation_fails() -> None:
    def split(rows: Tensor) -> Tensor:
        """As torch with 5 threads: the end of each thread's part is computed with other instructions."""
        result = silu(rows.flatten())
        part = -(-len(result) // torch.get_num_threads())
        for end in range(part, len(result), part):
            result[end - 3 : end] = torch.nextafter(result[end - 3 : end], result.new_tensor(9.0))
        return result.view_as(rows)

    with with_threads(5):
        failed = check(split, *ELEMENTWISE_ROWS, width=128)
    assert (
        not failed.holds and f"({ELEMENTWISE_ROWS[0]} x 128)" in failed.found and "5 threads" in failed.found
    )


def test_check_packed_batch_dependent_layer_fails(engine: Engine) -> None:
    assert check_packed(packed_layers(engine.wirings[0].network)).holds
    layer = RowLayer("layer", 8, lambda rows: rows * (1 + 1e-6 * (len(rows) == 36)))
    failed = check_packed([layer])
    assert not failed.holds and "(36 x 8)" in failed.found and "(2 x 8)" not in failed.found


def test_layers_cover_shapes_of_model(engine: Engine) -> None:
    network = engine.wirings[0].network
    linear = linear_layers(network)
    # q and o, k and v, gate and up, down, lm_head
    shapes = sorted((layer.width, layer.function(torch.ones(1, layer.width)).shape[-1]) for layer in linear)
    assert shapes == [(64, 32), (64, 64), (64, 97), (64, 128), (128, 64)]
    assert sorted((layer.name, layer.width) for layer in elementwise_layers(network)) == [
        ("LlamaRMSNorm", 64),
        ("SiLUActivation", 128),
    ]
    assert {layer.width for layer in packed_layers(network)} == {64, 128}
    assert set(range(2, 17)) < set(GEMM_ROWS)


def test_check_fused_attention_offset_dependence_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    attention = torch.nn.functional.scaled_dot_product_attention

    def depend_on_address(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
        assert query.any() and key.any() and value.any()
        output: Tensor = attention(query, key, value, **options)
        return output + 1e-3 * (query.storage_offset() > 0)

    monkeypatch.setattr(kernel_checks, "scaled_dot_product_attention", depend_on_address)
    assert check_fused_attention(torch.float32, CPU).holds
    monkeypatch.setattr(kernel_checks, "copied", torch.Tensor.contiguous)
    failed = check_fused_attention(torch.float32, CPU)
    assert not failed.holds and "1 tokens, 1 heads of 32" in failed.found
    monkeypatch.setattr(kernel_checks, "copied", lambda rows: rows)
    failed = check_fused_attention(torch.float32, CPU)
    assert not failed.holds
    for words in ("1 tokens, 4 heads of 32", "140 tokens, 1 heads of 40", "23 tokens, 3 heads of 24"):
        assert words in failed.found


def test_check_determinism_changing_result_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_determinism(torch.float32, CPU).holds
    argsort, calls = torch.argsort, iter(range(99))
    monkeypatch.setattr(torch, "argsort", lambda *args, **options: argsort(*args, **options) + next(calls))
    failed = check_determinism(torch.float32, CPU)
    assert not failed.holds and failed.found.endswith("for argsort")
