"""The self-test passes where exactness holds, and fails where it is broken on purpose."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import silu

from pine_engine import selftest
from pine_engine.engine import ALIKE_ROWS, Engine
from pine_engine.invariance import orders_to_try
from pine_engine.methods import METHODS
from pine_engine.selftest import (
    RowLayer,
    check_control,
    check_fused_attention,
    check_orders,
    check_padded_attention,
    check_products,
    check_repeats,
    check_rowwise,
    check_small_products,
    linear_layers,
    plan_checks,
    prompts,
    relied_counts,
    rowwise_layers,
    uneven_counts,
    without_keys,
)
from pine_engine.synthetic import load_engine, synthetic_model
from pine_engine.trace import Trace

CPU = torch.device("cpu")
PROMISING = [method for method in METHODS.values() if method.promises_invariance]


@pytest.fixture(scope="module")
def engine() -> Engine:
    return load_engine("random:tiny")


def by_place(rows: Tensor) -> Tensor:
    """As a product whose bits depend on a row's place among 12 or more: the last is off by one ulp."""
    result = rows * 2
    if len(rows) >= ALIKE_ROWS:
        result[-1] = torch.nextafter(result[-1], result[-1] + 1)
    return result


def test_all_that_is_promised_holds_here(engine: Engine) -> None:
    checks = [check() for check in plan_checks(engine, shuffles=2)]
    assert [check.name for check in checks if check.verdict == "FAIL"] == []
    passed = [check.name for check in checks if check.verdict == "pass"]
    kinds = list(prompts(97))
    for model in ("tiny model", "random:tiny"):
        assert [name.removeprefix(f"{model}: ") for name in passed if name.startswith(f"{model}: ")][:6] == [
            *kinds,
            "control, vanilla changes",
        ]
    assert "tiny model: exact ties of importance" in passed


def test_a_product_that_knows_its_row_fails() -> None:
    check = check_products([RowLayer("linear layer", 8, by_place)], torch.float32, CPU)
    assert (check.verdict, check.holds) == ("FAIL", False)
    assert check.found.endswith("a row's bits depend on its place with 12, 13, 14, 15, 16, 64, 300 rows")
    assert check.meaning.startswith("a token's states depend on its place in the prompt")


def test_products_of_few_rows_are_information() -> None:
    """MKL's float32 products of 5, 6, 7 and 9, 10, 11 rows have other bits in other rows; here, of 7."""

    def off_at_seven(rows: Tensor) -> Tensor:
        return by_place(rows.repeat(2, 1))[len(rows) :] if len(rows) == 7 else rows * 2

    check = check_small_products([RowLayer("linear layer", 8, off_at_seven)], torch.float32, CPU)
    assert (check.verdict, check.holds) == ("info", False)
    assert check.found.endswith("depend on its place with 7 rows")
    assert check.meaning == "so the engine fills up shorter prompts to 12 tokens"


@pytest.mark.usefixtures("five_threads")
def test_with_five_threads_the_engine_feeds_row_counts_that_activations_bear() -> None:
    """The real activation, at a width where it does cut inside rows; the control is the count itself."""
    model = load_engine("random:tiny", dtype="float32", device="cpu")
    model.model.config.intermediate_size = 1536
    layer = RowLayer("SiLU", 1536, silu)
    assert not check_rowwise([layer], [101], torch.float32, CPU).holds
    assert model.rows_alike(101) > 101
    assert check_rowwise([layer], [model.rows_alike(101)], torch.float32, CPU).holds


def test_row_counts_are_either_relied_on_or_avoided() -> None:
    assert relied_counts() == [8, 12, 13, 14, 15, 16, 64, 300]


def test_every_row_is_tried_in_other_places() -> None:
    for wrong in range(5):

        def off(rows: Tensor, wrong: int = wrong) -> Tensor:
            return rows + torch.eye(5)[:, wrong : wrong + 1] * 1e-3

        assert uneven_counts([RowLayer("off", 3, off)], [5], torch.float32, CPU) == [5]
    assert uneven_counts([RowLayer("even", 3, lambda rows: rows * 2)], [5], torch.float32, CPU) == []


def test_layers_are_those_of_the_model(engine: Engine) -> None:
    linear = linear_layers(engine.model)
    # q and o, k and v, gate and up, down, and the head
    shapes = sorted((layer.width, layer.function(torch.ones(1, layer.width)).shape[-1]) for layer in linear)
    assert shapes == [(64, 32), (64, 64), (64, 97), (64, 128), (128, 64)]
    assert sorted((layer.name, layer.width) for layer in rowwise_layers(engine.model)) == [
        ("LlamaRMSNorm", 64),
        ("SiLUActivation", 128),
    ]


@pytest.fixture
def five_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(5)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("five_threads")
def test_an_activation_cut_inside_rows_by_threads_fails() -> None:
    def cut(rows: Tensor) -> Tensor:
        """As torch does with 5 threads: the end of each thread's part is computed in another way."""
        result = silu(rows.flatten())
        part = -(-len(result) // torch.get_num_threads())
        for end in range(part, len(result), part):
            result[end - 3 : end] = torch.nextafter(result[end - 3 : end], result.new_tensor(9.0))
        return result.view_as(rows)

    check = check_rowwise([RowLayer("SiLU", 128, cut)], [12, 101], torch.float32, CPU)
    assert check.verdict == "FAIL"
    assert "5 threads: a row's bits depend on its place in SiLU of 12 x 128" in check.found
    assert check.meaning.endswith("set OMP_NUM_THREADS to 1, 2 or 4, or use bfloat16")
    assert check_rowwise(
        [RowLayer("double", 128, lambda rows: rows * 2)], [12, 101], torch.float32, CPU
    ).holds


def test_attention_that_knows_the_place_of_a_document_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    own = torch.nn.functional.scaled_dot_product_attention

    def by_address(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
        output: Tensor = own(query, key, value, **options)
        return output + 1e-3 * (query.storage_offset() > 0)

    assert check_fused_attention(torch.float32, CPU).verdict == "pass"
    monkeypatch.setattr(selftest, "scaled_dot_product_attention", by_address)
    check = check_fused_attention(torch.float32, CPU)
    assert (check.verdict, check.found) == (
        "FAIL",
        "other bits at another place for documents of 1, 7, 23, 140 tokens",
    )


def test_a_padded_batch_is_information(monkeypatch: pytest.MonkeyPatch) -> None:
    def exact(query: Tensor, key: Tensor, value: Tensor, *, attn_mask: Tensor) -> Tensor:
        """Sums that padding cannot change: each query takes the value of its own token."""
        return query + value

    monkeypatch.setattr(selftest, "scaled_dot_product_attention", exact)
    check = check_padded_attention(torch.float32, CPU)
    assert (check.verdict, check.holds) == ("info", True)
    monkeypatch.setattr(selftest, "_attend", lambda q, k, v, _: q + v + 1e-3 * (q.shape[-2] == 7))
    check = check_padded_attention(torch.float32, CPU)
    assert (check.verdict, check.holds) == ("info", False)
    assert "for documents of 7 among 7, 23, 140 tokens" in check.found


def test_sums_in_the_order_of_threads_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_repeats(torch.float32, CPU).verdict == "pass"
    own, calls = torch.argsort, iter(range(99))
    monkeypatch.setattr(torch, "argsort", lambda *given, **options: own(*given, **options) + next(calls))
    check = check_repeats(torch.float32, CPU)
    assert (check.verdict, check.found) == ("FAIL", "other bits the next time: sorting")


def test_a_model_with_such_a_product_fails_end_to_end(engine: Engine) -> None:
    layout = prompts(97)["documents of many lengths"]
    projection = engine.model.model.layers[0].mlp.down_proj

    def nudge(_: Any, __: Any, output: Tensor) -> Tensor:
        places = torch.arange(output.shape[1])[:, None]
        return output + output.abs() * 1e-5 * (places % 5 == 0)

    assert check_orders(engine, layout, PROMISING, "plain", shuffles=2).verdict == "pass"
    hook = projection.register_forward_hook(nudge)
    try:
        check = check_orders(engine, layout, PROMISING, "nudged", shuffles=2)
    finally:
        hook.remove()
    assert check.verdict == "FAIL"
    for method in PROMISING:
        assert f"{method.name} (up to " in check.found
    assert check.found.startswith(f"{len(PROMISING)} methods, 3 orders, 104 tokens: changed: ")


def test_a_check_that_sees_no_change_of_vanilla_is_said_to_show_nothing(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert check_control(engine).verdict == "pass"
    monkeypatch.setattr(selftest, "orders_to_try", lambda count, *_: orders_to_try(count, 0) * 2)
    check = check_control(engine)
    assert (check.verdict, check.meaning) == ("FAIL", "no change is seen at all: these checks show nothing")


def test_without_keys_importance_is_exactly_tied() -> None:
    tied = Engine(without_keys(synthetic_model("random:tiny", dtype="float32", device="cpu")))
    layout = prompts(97)["documents of equal length"]
    trace: Trace = tied.run(layout, methods=["pine"], max_new_tokens=2, trace=True).traces["pine"]
    importance = trace.suffix_importance
    assert importance is not None and importance.shape[-1] == 4
    assert (importance == importance[..., :1]).all()
    assert len(set(layout.documents)) == 4


def test_prompts_are_what_they_are_called() -> None:
    given = prompts(97)
    assert len(set(given["documents of many lengths"].lengths.tolist())) == 5
    assert set(given["documents of one token"].lengths.tolist()) == {1, 14}
    twins = given["duplicate documents"].documents
    assert (len(twins), len(set(twins))) == (5, 3)
    assert given[f"a prompt of fewer than {ALIKE_ROWS} tokens"].num_tokens == 9
