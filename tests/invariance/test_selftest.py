"""The self-test passes on this machine, and each check fails if its property is broken."""

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
from pine_engine.invariance.kernel_checks import check_packed
from pine_engine.invariance.selftest import (
    INVARIANT,
    PUBLISHED,
    check_batch_neighbors,
    check_control,
    check_orders,
    check_stacking,
    plan_checks,
    prompts,
    without_keys,
)
from pine_engine.network import rope
from pine_engine.network.threads import with_threads


@pytest.fixture(scope="module")
def engine() -> Engine:
    return load_engine("random:tiny")


def test_self_test_passes_and_covers_all_models(engine: Engine) -> None:
    checks = [run_check() for run_check in plan_checks(engine, shuffles=2)]
    assert [check.name for check in checks if not check.holds] == []
    names = {check.name for check in checks}
    models = ("tiny model", "random:tiny", *(f"tiny model, {label}" for label in DEMANDING.values()))
    labels = (*prompts(97), "batch neighbors", "stacked sequences")
    assert {f"{model}: {label}" for model in models for label in labels} < names
    assert {f"{model}: control, vanilla changes" for model in ("tiny model", "random:tiny")} < names
    assert {"tiny model: exact ties of importance", "linear layers", "activations and norms"} < names
    assert {"fused attention", "determinism"} < names
    found = {check.name: check.found for check in checks}
    assert found["tiny model: duplicate documents"].startswith(f"{len(INVARIANT)} methods, 3 orders")
    assert found["random:tiny: duplicate documents"].startswith(f"{len(PUBLISHED)} methods, 3 orders")


@pytest.mark.parametrize("four_bit", [True, False])
def test_self_test_checks_packed_weights_in_4bit(four_bit: bool) -> None:
    model = synthetic_model("random:tiny", dtype="float32", device="cpu")
    planned: list[Any] = plan_checks(Engine(model, four_bit=four_bit), shuffles=1)
    assert (check_packed in [check.func for check in planned]) == four_bit


def test_check_orders_index_dependent_layer_fails(engine: Engine) -> None:
    layout = prompts(97)["documents of many lengths"]

    def nudge(_: Any, __: Any, output: Tensor) -> Tensor:
        indices = torch.arange(output.shape[1])[:, None]
        return output + output.abs() * 1e-5 * (indices % 5 == 0)

    hook = engine.wirings[0].network.model.layers[0].mlp.down_proj.register_forward_hook(nudge)
    try:
        check = check_orders(engine, layout, INVARIANT, "nudged", shuffles=2)
    finally:
        hook.remove()
    assert check.verdict == "FAIL" and f"{len(INVARIANT)} methods, 3 orders, 104 tokens" in check.found
    assert all(f"{method} (up to " in check.found for method in INVARIANT)


def test_check_batch_neighbors_batch_dependent_layer_fails(engine: Engine) -> None:
    def nudge(_: Any, __: Any, output: Tensor) -> Tensor:
        return output * (1 + 1e-6 * (len(output) > 2))

    hook = engine.wirings[0].network.model.layers[0].mlp.down_proj.register_forward_hook(nudge)
    try:
        check = check_batch_neighbors(engine)
    finally:
        hook.remove()
    assert not check.holds and "batch 2 (up to " in check.found and "batch 1" not in check.found


@pytest.mark.parametrize("shape", ["seven-queries", "unaligned-heads"])
def test_check_stacking_hard_shape_needs_invariant_attention(
    shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with with_threads(2):
        assert check_stacking(load_engine(f"random:{shape}")).holds
        monkeypatch.setattr(decode, "decode_attention_threads", lambda *_: None)
        monkeypatch.setattr(rope, "ALIGNED_DIMS", 1)
        assert not check_stacking(load_engine(f"random:{shape}")).holds


def test_check_control_unchanged_vanilla_fails(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_control(engine).holds
    monkeypatch.setattr(selftest, "orders_to_try", lambda count, *_: orders_to_try(count, 0) * 2)
    assert not check_control(engine).holds


def test_without_keys_ties_importance_exactly() -> None:
    tied = Engine(without_keys(synthetic_model("random:tiny", dtype="float32", device="cpu")))
    layout = prompts(97)["documents of equal length"]
    trace: Trace = tied.run(layout, methods=["pine"], max_new_tokens=2, trace=True).traces["pine"]
    importance = trace.suffix_importance
    assert importance is not None and importance.shape[-1] == 4
    assert (importance == importance[..., :1]).all()
    assert len(set(layout.documents)) == 4


def test_prompts_match_their_labels() -> None:
    layouts = prompts(97)
    assert len(set(layouts["documents of many lengths"].lengths.tolist())) == 5
    assert set(layouts["documents of one token"].lengths.tolist()) == {1, 14}
    documents = layouts["duplicate documents"].documents
    assert (len(documents), len(set(documents))) == (5, 3)
    assert layouts["a prompt of a few tokens"].num_tokens == 9
