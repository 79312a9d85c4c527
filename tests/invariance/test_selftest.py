"""The self-test passes where exactness holds, and fails where it is broken on purpose."""

from typing import Any

import pytest
import torch
from torch import Tensor

from pine_engine.attention import decode
from pine_engine.attention.trace import Trace
from pine_engine.benchmark.random_models import DEMANDING, load_engine, synthetic_model
from pine_engine.engine.engine import Engine
from pine_engine.engine.orders import orders_to_try
from pine_engine.invariance import selftest
from pine_engine.invariance.selftest import (
    check_control,
    check_neighbours,
    check_orders,
    check_stacking,
    plan_checks,
    prompts,
    without_keys,
)
from pine_engine.methods.table import METHODS
from pine_engine.network import rope
from pine_engine.network.threads import with_threads

PROMISING = [method for method in METHODS.values() if method.promises_invariance]


@pytest.fixture(scope="module")
def engine() -> Engine:
    return load_engine("random:tiny")


def test_all_that_is_promised_holds_here(engine: Engine) -> None:
    checks = [check() for check in plan_checks(engine, shuffles=2)]
    assert [check.name for check in checks if check.verdict == "FAIL"] == []
    passed = [check.name for check in checks if check.verdict == "pass"]
    for model in ("tiny model", "random:tiny", *(f"tiny model, {words}" for words in DEMANDING.values())):
        for words in (*prompts(97), "neighbours in a batch", "stacked sequences"):
            assert f"{model}: {words}" in passed
    for model in ("tiny model", "random:tiny"):
        assert f"{model}: control, vanilla changes" in passed
    assert "tiny model: exact ties of importance" in passed


def test_a_model_with_such_a_product_fails_end_to_end(engine: Engine) -> None:
    layout = prompts(97)["documents of many lengths"]
    projection = engine.wirings[0].network.model.layers[0].mlp.down_proj

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


def test_a_product_of_few_rows_fails_beside_other_neighbours(engine: Engine) -> None:
    def nudge(_: Any, __: Any, output: Tensor) -> Tensor:
        return output * (1 + 1e-6 * (len(output) > 2))

    assert check_neighbours(engine).verdict == "pass"
    hook = engine.wirings[0].network.model.layers[0].mlp.down_proj.register_forward_hook(nudge)
    try:
        check = check_neighbours(engine)
    finally:
        hook.remove()
    assert (check.verdict, "logits differ by up to " in check.found) == ("FAIL", True)


@pytest.mark.parametrize("shape", ["seven-queries", "unaligned-heads"])
def test_check_stacking_hard_shape_passes_only_with_invariant_attention(
    shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with with_threads(2):
        assert check_stacking(load_engine(f"random:{shape}")).verdict == "pass"
        monkeypatch.setattr(decode, "decode_attention_threads", lambda *_: None)
        monkeypatch.setattr(rope, "ALIGNED_DIMS", 1)
        assert check_stacking(load_engine(f"random:{shape}")).verdict == "FAIL"


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
    assert given["a prompt of a few tokens"].num_tokens == 9
