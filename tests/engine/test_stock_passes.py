"""Models that run as they are: their own answers, methods that fit, and bitwise identity under shuffles."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

from pine_engine import (
    METHODS,
    Engine,
    InputError,
    ModelError,
    PrefillProgress,
    TokenRange,
    TraceConfig,
    patch_generate,
)
from pine_engine.engine.generation import generate_batch
from pine_engine.engine.passes import PassOptions, extend, prefill
from pine_engine.models.support import PROBE_TOKENS
from pine_engine.network.registration import NAME
from pine_engine.network.stock_model import StockModel
from tests.support.errors import has_field
from tests.support.families import LATENT_EXPERTS, LAYOUT, make
from tests.support.tiers import first_daily

STOCK: dict[str, tuple[dict[str, Any], str | None]] = {
    "lfm2": ({"layer_types": ["conv", "full_attention"]}, "past_key_values"),
    "mamba": ({"intermediate_size": 64}, "cache_params"),
    "recurrent_gemma": ({}, None),  # its state is in modules, which another sequence would overwrite
    "gpt2": ({}, "past_key_values"),
    "bloom": ({}, "past_key_values"),
    "deepseek_v32": (LATENT_EXPERTS | {"index_topk": 4}, "past_key_values"),
    "rwkv": ({"attention_hidden_size": 32}, "state"),
}
"""Options and name of the cache by model type."""

OPTIONS: dict[str, Any] = {"max_new_tokens": 4, "stop_at_eos": False, "return_logits": True}
PASSES = [
    *("vanilla", "reorder_content", "reorder_likelihood", "by_score", "by_score_reversed", "ends_by_score"),
    *("nbce", "naive_bayes", "ensemble"),
]


@cache
def engine_of(kind: str) -> Engine:
    return Engine(make(kind, torch.float64, **STOCK[kind][0]))


@pytest.fixture
def engine() -> Engine:
    return engine_of("lfm2")


def test_methods_of_vanilla_passes_need_passes_alone() -> None:
    assert [method.name for method in METHODS.values() if method.fits("passes")] == PASSES


@pytest.mark.parametrize("kind", first_daily(STOCK, 3))
def test_answer_equals_generate_of_the_model(kind: str) -> None:
    engine = engine_of(kind)
    (stock,) = engine.patched_models
    assert isinstance(stock, StockModel) and stock.cache_name == STOCK[kind][1]
    result = engine.run(LAYOUT, methods="vanilla", **OPTIONS)
    ids = torch.tensor([[*LAYOUT.ids, *result.answers["vanilla"].token_ids[:-1]]])
    with torch.inference_mode():
        expected = engine.model(ids, use_cache=False).logits[0, LAYOUT.documents_end :].float()
    torch.testing.assert_close(result.logits["vanilla"], expected, rtol=1e-6, atol=1e-6)
    assert result.answers["vanilla"].token_ids == tuple(expected[-4:].argmax(-1).tolist())


@pytest.mark.parametrize("kind", first_daily(STOCK, 3))
def test_order_invariant_methods_are_bitwise_identical(kind: str) -> None:
    shuffled = engine_of(kind).shuffle(LAYOUT, methods=PASSES, count=2, **OPTIONS)
    held = dict.fromkeys(PASSES, True)
    assert shuffled.invariance_held == held | {"vanilla": None}
    assert engine_of(kind).invariance_warning is None


@pytest.mark.parametrize("kind", ["mamba", "lfm2"])
def test_order_changes_the_logits_of_recurrent_models(kind: str) -> None:
    """A state that forgets depends on the order as positions do."""
    stats = engine_of(kind).shuffle(LAYOUT, methods="vanilla", count=4, **OPTIONS).summary["vanilla"]
    assert not stats.bitwise_identical and stats.max_abs_logit_diff > 1e-3


def _generate(engine: Engine) -> None:
    list(generate_batch(engine, LAYOUT, method="pine"))


def _patch(engine: Engine) -> None:
    with patch_generate(engine, LAYOUT, method="nia"):
        pass


@pytest.mark.parametrize(
    "call",
    [
        lambda engine: engine.run(LAYOUT, methods="all"),
        lambda engine: list(engine.generate(LAYOUT, methods=["vanilla", "pine"])),
        lambda engine: engine.shuffle(LAYOUT, methods="attention_sorting"),
        lambda engine: engine.score(LAYOUT, "a", methods="attention_buckets"),
        _generate,
        _patch,
    ],
)
def test_method_that_places_documents_is_refused_with_the_reason(
    engine: Engine, call: Callable[[Engine], object]
) -> None:
    with pytest.raises(ModelError, match="recurrent, state-space or convolution", check=has_field("methods")):
        call(engine)


def test_default_methods_fit(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    assert list(engine.run(LAYOUT, **OPTIONS).answers) == ["vanilla", "reorder_content"]
    assert engine.default_method.name == "reorder_content"
    assert [method.name for method in engine.methods] == PASSES
    Engine(make("bloom"))
    (record,) = caplog.records
    assert "ALiBi" in record.getMessage() and ", ".join(PASSES) in record.getMessage()


@pytest.mark.parametrize("kind", ["lfm2", "recurrent_gemma"])
def test_scores_equal_the_answer_and_leave_the_prompt(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second answer is scored after the state of the prompt, which the first has not changed."""
    engine = engine_of(kind)
    answer = engine.run(LAYOUT, methods="vanilla", **OPTIONS).answers["vanilla"]
    texts = {"other": (7, 8, 9), "greedy": answer.token_ids}
    monkeypatch.setattr(engine, "tokenize_answer", texts.__getitem__)
    other, greedy = engine.score(LAYOUT, list(texts), methods="vanilla")["vanilla"]
    assert greedy.is_greedy and not other.is_greedy
    assert greedy.logprobs == pytest.approx(answer.logprobs, abs=1e-6)
    stock = engine.patched_models[0]
    if isinstance(stock, StockModel) and stock.cache_name:
        assert greedy.logprobs == answer.logprobs


def test_trace_has_positions_of_vanilla_and_no_attention(engine: Engine) -> None:
    result = engine.run(LAYOUT, methods=PASSES, trace=True, **OPTIONS)
    trace = result.traces["vanilla"]
    assert trace.suffix_starts[0, 0, -1].tolist() == LAYOUT.document_starts.tolist()
    assert [len(step) for step in trace.alternatives] == [5] * 4
    assert all(each.suffix_attention is None for each in result.traces.values())
    with pytest.raises(InputError, check=has_field("trace")):
        engine.run(LAYOUT, trace=TraceConfig(TokenRange(0, 0, 0, 2)), methods="vanilla")


def test_prefill_reports_layers_and_can_be_stopped(engine: Engine) -> None:
    events = engine.generate(LAYOUT, methods="vanilla", **OPTIONS)
    begun = [next(events) for _ in range(2)]
    assert [one.layers_done for one in begun if isinstance(one, PrefillProgress)] == [0, 1]
    events.close()
    assert engine.run(LAYOUT, methods="vanilla", **OPTIONS).answers


def test_runs_of_several_threads_equal_runs_alone(engine: Engine) -> None:
    layouts, methods = [LAYOUT, LAYOUT.reorder([2, 0, 1])], ["vanilla", "nbce"]
    alone = [engine.run(layout, methods=methods, **OPTIONS).logits for layout in layouts]
    with ThreadPoolExecutor() as pool:
        together = pool.map(lambda layout: engine.run(layout, methods=methods, **OPTIONS).logits, layouts)
    for one, other in zip(alone, together, strict=True):
        assert all(torch.equal(one[method], other[method]) for method in methods)


@torch.inference_mode()
def test_each_row_is_fed_once_by_its_model(engine: Engine) -> None:
    """A run that began before a change of the weights keeps its model."""
    models = engine.patched_models, tuple(map(replace, engine.patched_models))
    rows = [prefill(LAYOUT, METHODS["vanilla"], PassOptions(one))[0] for one in (*models, models[0])]
    alone = extend(rows[2:], [[7]])
    assert torch.equal(extend(rows[:2], [[7], [7]]), alone.repeat(2, 1, 1))
    assert [row.cache.length for row in rows] == [LAYOUT.num_tokens + 1] * 3


def test_generate_of_transformers_runs_the_method(engine: Engine) -> None:
    expected = engine.run(LAYOUT, methods="reorder_content", **OPTIONS).answers["reorder_content"].token_ids
    with patch_generate(engine, LAYOUT, method="reorder_content") as inputs:
        beams = engine.model.generate(**inputs, max_new_tokens=4, num_beams=2)
        greedy = engine.model.generate(**inputs, max_new_tokens=4, min_new_tokens=4)
    assert tuple(greedy[0, LAYOUT.num_tokens :].tolist()) == expected
    assert len(beams[0]) >= LAYOUT.num_tokens


def test_changed_weights_change_the_answer() -> None:
    engine = Engine(make("lfm2", torch.float64, **STOCK["lfm2"][0], tie_word_embeddings=False))
    before = engine.run(LAYOUT, methods="vanilla", **OPTIONS).logits["vanilla"]
    model: Any = engine.model
    with torch.no_grad():
        model.lm_head.weight.mul_(2)
    after = engine.run(LAYOUT, methods="vanilla", **OPTIONS).logits["vanilla"]
    torch.testing.assert_close(after[0], 2 * before[0], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", ["bert", "bert-generation"])
def test_model_whose_tokens_attend_to_later_ones_is_refused(kind: str) -> None:
    with pytest.raises(ModelError, match="attend to later ones"):
        Engine(make(kind))


def test_4_bit_decoding_is_refused() -> None:
    with pytest.raises(ModelError, match="float32", check=has_field("dtype")):
        Engine(make("bloom"), decode_in_4bit=True)


def failing_llama(condition: Callable[[Any, int], bool]) -> Any:
    """Return a model whose first layer raises an error under a condition on it and the number of tokens."""
    model: Any = make("llama")

    def fail(layer: Any, args: tuple[torch.Tensor, ...]) -> None:
        if condition(layer, args[0].shape[1]):
            raise RuntimeError("narrow(): length must be non-negative")

    model.model.layers[0].register_forward_pre_hook(fail)
    return model


def test_error_of_a_checked_model_leaves_passes() -> None:
    def is_replaced_and_long(layer: Any, num_tokens: int) -> bool:
        return layer.self_attn.config._attn_implementation == NAME and num_tokens > PROBE_TOKENS

    engine = Engine(failing_llama(is_replaced_and_long))
    problem = engine.placement_problem or ""
    assert "narrow()" in problem and "\n" not in problem and [one.name for one in engine.methods] == PASSES
    expected = Engine(make("llama")).run(LAYOUT, methods="vanilla", **OPTIONS).answers["vanilla"].token_ids
    assert engine.run(LAYOUT, methods="vanilla", **OPTIONS).answers["vanilla"].token_ids == expected


@pytest.mark.parametrize("num_tokens", [1, PROBE_TOKENS + 1])
def test_error_of_a_model_is_one_sentence(num_tokens: int) -> None:
    with pytest.raises(ModelError, match=r"^LlamaForCausalLM.*narrow\(\).*; use another model$"):
        Engine(failing_llama(lambda _, count: count >= num_tokens))
