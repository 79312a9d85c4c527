"""The checks of single operations pass where rows are alike, and fail where they are not."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import silu

from pine_engine.benchmark.random_models import load_engine
from pine_engine.engine.engine import Engine
from pine_engine.invariance import kernels
from pine_engine.invariance.kernels import (
    PROMPT_COUNTS,
    ROW_COUNTS,
    RowLayer,
    check_fused_attention,
    check_own_products,
    check_padded_attention,
    check_products,
    check_repeats,
    check_rowwise,
    linear_layers,
    rowwise_layers,
    uneven_counts,
)
from pine_engine.network.threads import with_threads

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def engine() -> Engine:
    return load_engine("random:tiny")


def by_place(rows: Tensor) -> Tensor:
    """As a product whose bits depend on a row's place among 12 or more: the last is off by one ulp."""
    result = rows * 2
    if len(rows) >= 12:
        result[-1] = torch.nextafter(result[-1], result[-1] + 1)
    return result


def test_a_product_that_knows_its_row_fails() -> None:
    layers = [RowLayer("linear layer", 8, by_place)]
    check = check_products(layers, torch.float32, CPU)
    assert (check.verdict, check.holds) == ("FAIL", False)
    assert check.found.endswith("a row's bits depend on its place with 12, 13, 14, 15, 16, 64, 300 rows")
    assert check.meaning.startswith("a token's states depend on its place in the prompt")
    own = check_own_products(layers, torch.float32, CPU)
    assert (own.verdict, own.holds, own.found) == ("info", False, check.found)
    assert own.meaning == "so the engine makes them in another way"


def test_every_small_number_of_rows_is_tried() -> None:
    assert set(range(2, 17)) < set(ROW_COUNTS)


def test_every_row_is_tried_in_other_places() -> None:
    for wrong in range(5):

        def off(rows: Tensor, wrong: int = wrong) -> Tensor:
            return rows + torch.eye(5)[:, wrong : wrong + 1] * 1e-3

        assert uneven_counts([RowLayer("off", 3, off)], [5], torch.float32, CPU) == [5]
    assert uneven_counts([RowLayer("even", 3, lambda rows: rows * 2)], [5], torch.float32, CPU) == []


def test_layers_are_those_of_the_model(engine: Engine) -> None:
    linear = linear_layers(engine.wirings[0].network)
    # q and o, k and v, gate and up, down, and the head
    shapes = sorted((layer.width, layer.function(torch.ones(1, layer.width)).shape[-1]) for layer in linear)
    assert shapes == [(64, 32), (64, 64), (64, 97), (64, 128), (128, 64)]
    assert sorted((layer.name, layer.width) for layer in rowwise_layers(engine.wirings[0].network)) == [
        ("LlamaRMSNorm", 64),
        ("SiLUActivation", 128),
    ]


@pytest.fixture
def five_threads() -> Iterator[None]:
    with with_threads(5):
        yield


@pytest.mark.usefixtures("five_threads")
def test_an_activation_cut_inside_rows_by_threads_fails() -> None:
    def cut(rows: Tensor) -> Tensor:
        """As torch does with 5 threads: the end of each thread's part is computed in another way."""
        result = silu(rows.flatten())
        part = -(-len(result) // torch.get_num_threads())
        for end in range(part, len(result), part):
            result[end - 3 : end] = torch.nextafter(result[end - 3 : end], result.new_tensor(9.0))
        return result.view_as(rows)

    check = check_rowwise([RowLayer("SiLU", 128, cut)], torch.float32, CPU)
    assert check.verdict == "FAIL"
    assert f"5 threads: a row's bits depend on its place in SiLU of {PROMPT_COUNTS[0]} x 128" in check.found
    assert "another number of threads (OMP_NUM_THREADS)" in check.meaning
    assert check_rowwise([RowLayer("double", 128, lambda rows: rows * 2)], torch.float32, CPU).holds


def test_attention_that_knows_the_place_of_a_document_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    own = torch.nn.functional.scaled_dot_product_attention

    def by_address(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
        output: Tensor = own(query, key, value, **options)
        return output + 1e-3 * (query.storage_offset() > 0)

    monkeypatch.setattr(kernels, "scaled_dot_product_attention", by_address)
    assert check_fused_attention(torch.float32, CPU).verdict == "pass"
    monkeypatch.setattr(kernels, "copied", torch.Tensor.contiguous)
    check = check_fused_attention(torch.float32, CPU)
    assert (check.verdict, "1 tokens, 1 heads of 32" in check.found) == ("FAIL", True)
    monkeypatch.setattr(kernels, "copied", lambda rows: rows)
    check = check_fused_attention(torch.float32, CPU)
    assert check.verdict == "FAIL"
    for words in ("1 tokens, 4 heads of 32", "140 tokens, 1 heads of 40", "23 tokens, 3 heads of 24"):
        assert words in check.found


def test_a_padded_batch_is_information(monkeypatch: pytest.MonkeyPatch) -> None:
    def exact(query: Tensor, key: Tensor, value: Tensor, *, attn_mask: Tensor) -> Tensor:
        """Sums that padding cannot change: each query takes the value of its own token."""
        return query + value

    monkeypatch.setattr(kernels, "scaled_dot_product_attention", exact)
    check = check_padded_attention(torch.float32, CPU)
    assert (check.verdict, check.holds) == ("info", True)
    monkeypatch.setattr(kernels, "_attend", lambda q, k, v, _: q + v + 1e-3 * (q.shape[-2] == 7))
    check = check_padded_attention(torch.float32, CPU)
    assert (check.verdict, check.holds) == ("info", False)
    assert "for documents of 7 among 7, 23, 140 tokens" in check.found


def test_sums_in_the_order_of_threads_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_repeats(torch.float32, CPU).verdict == "pass"
    own, calls = torch.argsort, iter(range(99))
    monkeypatch.setattr(torch, "argsort", lambda *given, **options: own(*given, **options) + next(calls))
    check = check_repeats(torch.float32, CPU)
    assert (check.verdict, check.found) == ("FAIL", "other bits the next time: sorting")
