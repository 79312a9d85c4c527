"""Half precision on a simulated processor whose GEMM has other sums for other numbers of rows."""

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st

from pine_engine import METHODS, Engine, PrefixCache, TokenLayout, generate_batch
from pine_engine.benchmark.shapes import load_engine
from pine_engine.engine import passes
from pine_engine.engine.likelihood import Score, score_methods
from pine_engine.invariance.selftest import prompts
from pine_engine.methods.table import get_methods
from pine_engine.network import batch_invariant_ops as ops
from pine_engine.scheduling.scheduler import run_shared
from tests.support.families import make
from tests.support.native_gemm import simulate_native_gemm
from tests.support.tiers import first_daily

DTYPES = first_daily([torch.bfloat16, torch.float16])
INVARIANT = ("pcw", "pine", "sp")
LAYOUT = prompts(97)["documents of many lengths"]

MIXTURES: dict[str, dict[str, Any]] = {
    "one of two": {"num_local_experts": 2, "num_experts_per_tok": 1},
    "two of two": {"num_local_experts": 2, "num_experts_per_tok": 2},
    "two of four": {"num_local_experts": 4, "num_experts_per_tok": 2, "hidden_size": 96},
    "three of eight": {
        "num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 48, "head_dim": 16,
        "norm_topk_prob": True,
    },
}  # fmt: skip


TOKENS = st.lists(st.integers(3, 96), min_size=1, max_size=5).map(tuple)
BY_MODEL, BY_PINE = ["vanilla", "nia", "pcw", "sp", "superposition"], ["pine", "rotor"]
"""Methods whose prefix is rotated by the model, in half precision, and by PINE, in float32."""


def mixture(name: str, dtype: torch.dtype) -> Engine:
    kind = "mixtral" if "num_local_experts" in MIXTURES[name] else "qwen3_moe"
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2}
    return Engine(make(kind, dtype, **sizes | MIXTURES[name]))


def has_equal_logits(engine: Engine) -> dict[str, bool]:
    shuffled = engine.shuffle(
        LAYOUT, methods=["vanilla", *INVARIANT], count=4, max_new_tokens=3, stop_at_eos=False
    )
    return {name: bool(stats.bitwise_identical) for name, stats in shuffled.summary.items()}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", first_daily(MIXTURES))
def test_experts_with_native_gemm_are_invariant(
    name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulate_native_gemm(monkeypatch)
    engine = mixture(name, dtype)
    assert ops.is_batch_invariant(dtype, torch.device("cpu")) and engine.invariance_warning is None
    assert has_equal_logits(engine) == {"vanilla": False} | dict.fromkeys(INVARIANT, True)


@pytest.mark.slow
def test_experts_without_blocks_depend_on_neighbors(monkeypatch: pytest.MonkeyPatch) -> None:
    simulate_native_gemm(monkeypatch, in_blocks=False)
    assert not all(has_equal_logits(mixture("one of two", torch.bfloat16)).values())


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_native_gemm_reuses_and_batches_bitwise(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    simulate_native_gemm(monkeypatch)
    engine = load_engine("random:tiny", dtype=str(dtype).removeprefix("torch."))
    other = TokenLayout(LAYOUT.prefix, LAYOUT.documents, (7, 8, 9))
    options: dict[str, Any] = {"max_new_tokens": 3, "stop_at_eos": False, "return_logits": True}
    expected = engine.run(other, methods=INVARIANT, **options).logits
    cache = PrefixCache()
    engine.run(LAYOUT, methods=INVARIANT, prefix_cache=cache, **options)
    reused = engine.run(other, methods=INVARIANT, prefix_cache=cache, **options).logits
    assert all(torch.equal(reused[name], logits) for name, logits in expected.items())
    layouts = [LAYOUT, other, LAYOUT.reorder(range(7)[::-1]), prompts(97)["duplicate documents"]]
    answers = [dict(generate_batch(engine, layouts, max_new_tokens=4, batch_size=size)) for size in (1, 2, 4)]
    logprobs = [[one[index].logprobs for index in range(len(layouts))] for one in answers]
    assert logprobs[1:] == logprobs[:1] * 2
    pass_options = passes.PassOptions(engine.patched_models, logits_to_keep=0)
    orders = [LAYOUT, LAYOUT.reorder([6, 5, 4, 3, 2, 1, 0])]
    with torch.inference_mode():
        for method in INVARIANT:
            together = passes.prefill_orders(orders, METHODS[method], [pass_options] * 2)
            for layout, (_, logits) in zip(orders, together, strict=True):
                assert torch.equal(passes.prefill(layout, METHODS[method], pass_options)[1], logits)


@pytest.fixture
def native_engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    simulate_native_gemm(monkeypatch)
    engine = load_engine("random:tiny", dtype="bfloat16")
    assert ops.uses_blocks(torch.bfloat16, torch.device("cpu")) and engine.invariance_warning is None
    return engine


def scores_of(
    engine: Engine, layout: TokenLayout, answers: list[tuple[int, ...]], names: list[str]
) -> dict[str, list[Score]]:
    texts, methods = [(str(ids), ids) for ids in answers], get_methods(names)
    return run_shared(lambda control: score_methods(engine, layout, methods, texts, control=control))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=4)
@given(
    case=st.sampled_from([(LAYOUT.prefix, BY_MODEL), (LAYOUT.prefix, BY_PINE), ((), BY_MODEL + BY_PINE)]),
    documents=st.lists(TOKENS, min_size=2, max_size=4).map(tuple),
    suffix=st.lists(st.integers(3, 96), min_size=2, max_size=6).map(tuple),
    answers=st.lists(TOKENS, min_size=1, max_size=2),
)
def test_scores_of_several_methods_equal_each_alone(
    native_engine: Engine,
    case: tuple[tuple[int, ...], list[str]],
    documents: tuple[tuple[int, ...], ...],
    suffix: tuple[int, ...],
    answers: list[tuple[int, ...]],
) -> None:
    """Several methods share prefixes, documents and the batch of an answer; none of it changes a bit.

    The prefix of the model and that of PINE differ by rounding, and a run of both kinds uses one of them.
    """
    prefix, names = case
    layout = TokenLayout(prefix, documents, suffix)
    together = scores_of(native_engine, layout, answers, names)
    assert together == {name: scores_of(native_engine, layout, answers, [name])[name] for name in names}
