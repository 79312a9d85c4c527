"""The engine against an independent reference, and the identities of docs/methods.md."""

import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import LlamaForCausalLM

from pine_engine.engine.engine import Engine
from pine_engine.engine.events import (
    GenerationFinished,
    PrefillDone,
    PrefillProgress,
    RunFinished,
    TokenGenerated,
)
from pine_engine.engine.transformers_generate import patch_generate
from pine_engine.errors import InputError
from pine_engine.methods.table import METHODS
from pine_engine.network.thread_tuner import torch_num_threads
from pine_engine.prompts.layout import TokenLayout
from tests.support.families import FAMILIES, by_tier, make
from tests.support.forward import count_tokens, prefill_logits
from tests.support.reference import exact_llama, reference_logits
from tests.support.tokenizers import letter_tokenizer

TinyLlama = Callable[..., LlamaForCausalLM]

LAYOUT = TokenLayout((5, 9, 60), ((11, 12, 13, 14), (21, 22), (31, 32, 33, 34, 35), (41,)), (51, 52, 53))
WITHOUT_PREFIX = TokenLayout((), LAYOUT.documents, LAYOUT.suffix)
"""As of a model without a BOS token."""

SHAPES = (
    "llama", "gpt_neox", "phi", "persimmon", "few rotary dimensions", "gemma2", "yarn",
    "cohere", "glm", "norm of queries and keys, interleaved",
)  # fmt: skip
"""All kinds of RoPE and of score scaling."""

INVARIANT = [name for name, method in METHODS.items() if method.is_order_invariant]
LOGITS: dict[str, Any] = {"max_new_tokens": 3, "return_logits": True, "stop_at_eos": False}

FAMILY_ROUNDING = 2e-5
"""Relative to the largest logit: norms and angles are float32 in float64 models too."""

ROUNDING = 1e-10
"""Float64: sums of some hundred terms in another order."""

FLOAT32_LOGITS = 1e-6
"""Returned logits are float32: half a unit in the last place of numbers up to about 10."""


@pytest.fixture(scope="module")
def engine(tiny_llama: TinyLlama) -> Engine:
    return Engine(exact_llama(tiny_llama), letter_tokenizer())


@pytest.mark.parametrize("layout", [LAYOUT, WITHOUT_PREFIX], ids=["prefix", "no prefix"])
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 2), (4, 1), (4, 4)])
def test_logits_are_those_of_the_definition(
    tiny_llama: TinyLlama, layout: TokenLayout, heads: int, kv_heads: int
) -> None:
    model = exact_llama(tiny_llama, heads=heads, kv_heads=kv_heads)
    engine = Engine(model)
    for method in METHODS:
        with torch.inference_mode():
            expected = reference_logits(model, layout, method)
        torch.testing.assert_close(prefill_logits(engine, layout, method), expected, rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("name", by_tier(SHAPES))
def test_families_without_prefix_follow_the_definition(name: str) -> None:
    family = FAMILIES[name]
    model = make(family.kind, torch.float64, **family.options)
    expected = {method: reference_logits(model, WITHOUT_PREFIX, method) for method in METHODS}
    engine = Engine(model)
    for method, logits in expected.items():
        deviation = (prefill_logits(engine, WITHOUT_PREFIX, method) - logits).abs().max()
        assert deviation <= FAMILY_ROUNDING * logits.abs().max(), method


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", by_tier(["llama", "phi", "cohere", "glm"]))
def test_families_without_prefix_keep_order_invariance(name: str, dtype: torch.dtype) -> None:
    family = FAMILIES[name]
    shuffled = Engine(make(family.kind, dtype, **family.options)).shuffle(
        WITHOUT_PREFIX, methods="all", max_new_tokens=3, count=4, stop_at_eos=False
    )
    for method, stats in shuffled.summary.items():
        assert stats.bitwise_identical == METHODS[method].is_order_invariant, method


def test_trace_and_generate_without_prefix_agree_with_engine(engine: Engine) -> None:
    for method in METHODS:
        result = engine.run(WITHOUT_PREFIX, methods=method, max_new_tokens=3, trace=True)
        shares = result.traces[method].suffix_attention
        assert shares is not None and not shares[..., 0].any()
        assert shares.sum(-1) == pytest.approx(1.0, abs=1e-6)
        with patch_generate(engine, WITHOUT_PREFIX, method=method) as inputs:
            model: Any = engine.model
            output = model.generate(**inputs, max_new_tokens=3, do_sample=False)
        ids = result.answers[method].token_ids
        assert tuple(output[0, WITHOUT_PREFIX.num_tokens :].tolist())[: len(ids)] == ids


@pytest.mark.parametrize("method", METHODS)
def test_one_document_is_vanilla_of_transformers(engine: Engine, method: str) -> None:
    layout = TokenLayout((5, 9, 60), (tuple(range(11, 20)),), (51, 52, 53))
    with torch.inference_mode():
        expected = engine.model(torch.tensor([layout.ids])).logits[0]
    torch.testing.assert_close(prefill_logits(engine, layout, method), expected, rtol=0, atol=ROUNDING)


def test_methods_differ(engine: Engine) -> None:
    logits = [prefill_logits(engine, LAYOUT, method)[-1] for method in METHODS]
    for left, right in itertools.combinations(logits, 2):
        assert (left - right).abs().max() > 1e-3


@pytest.mark.parametrize("method", METHODS)
def test_decoding_equals_prefill_of_longer_prompt(engine: Engine, method: str) -> None:
    result = engine.run(LAYOUT, methods=[method], **LOGITS | {"max_new_tokens": 5})
    ids = result.answers[method].token_ids
    longer = LAYOUT.extend(ids[:-1])
    expected = prefill_logits(engine, longer, method)[longer.documents_end :]
    torch.testing.assert_close(result.logits[method], expected.float(), rtol=0, atol=FLOAT32_LOGITS)
    assert ids == tuple(expected[LAYOUT.suffix_length - 1 :].argmax(-1).tolist())


def test_methods_of_one_run_answer_as_alone(engine: Engine) -> None:
    together = engine.run(LAYOUT, methods="all", max_new_tokens=6, stop_at_eos=False)
    assert list(together.answers) == list(METHODS)
    for method, answer in together.answers.items():
        alone = engine.run(LAYOUT, methods=[method], max_new_tokens=6, stop_at_eos=False).answers[method]
        assert answer.token_ids == alone.token_ids
        assert answer.logprobs == pytest.approx(alone.logprobs, abs=1e-5)


@st.composite
def layouts_with_order(draw: st.DrawFn) -> tuple[TokenLayout, list[int]]:
    ids = st.integers(3, 96)
    documents = draw(st.lists(st.lists(ids, min_size=1, max_size=12).map(tuple), min_size=2, max_size=7))
    prefix = draw(st.lists(ids, max_size=16))
    suffix = draw(st.lists(ids, min_size=1, max_size=4))
    layout = TokenLayout(tuple(prefix), tuple(documents), tuple(suffix))
    return layout, draw(st.permutations(range(len(documents))))


@pytest.mark.parametrize(
    ("dtype", "head_dim"),
    [(torch.float32, 8), (torch.float32, 24), (torch.float32, 40), (torch.bfloat16, 8)],
)
def test_order_changes_no_bit_of_invariant_methods(
    tiny_llama: TinyLlama, dtype: torch.dtype, head_dim: int
) -> None:
    """Small heads: kernels compute the end of a range, and unaligned rows, in another way."""
    engine = Engine(tiny_llama(dtype=dtype, head_dim=head_dim))

    @settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow])
    @given(case=layouts_with_order())
    def check(case: tuple[TokenLayout, list[int]]) -> None:
        layout, order = case
        one = engine.run(layout, methods=INVARIANT, **LOGITS)
        other = engine.run(layout.reorder(order), methods=INVARIANT, **LOGITS)
        for method, logits in one.logits.items():
            assert torch.equal(logits, other.logits[method])

    check()


@pytest.mark.parametrize("threads", [5, 6, 8])
def test_order_changes_no_bit_for_any_number_of_threads(tiny_llama: TinyLlama, threads: int) -> None:
    """Each thread computes the last elements of its part of an activation in another way."""
    engine = Engine(tiny_llama(head_dim=96, layers=1))
    generator = torch.Generator().manual_seed(threads)
    documents = [tuple(torch.randint(3, 97, (n,), generator=generator).tolist()) for n in (61, 40, 33, 52)]
    order = [2, 0, 3, 1]
    with torch_num_threads(threads):
        for suffix, method in itertools.product([(51, 52), (51, 52, 53)], ["pcw", "pine"]):
            layout = TokenLayout((5, 9, 60), tuple(documents), suffix)
            moved = layout.reorder(order)
            before, after = prefill_logits(engine, layout, method), prefill_logits(engine, moved, method)
            for slot, document in enumerate(order):
                pair = before[layout.document_slice(document)], after[moved.document_slice(slot)]
                assert torch.equal(*pair)


@pytest.mark.parametrize("method", METHODS)
def test_document_logits_move_with_document_if_invariant(engine: Engine, method: str) -> None:
    order = [2, 0, 3, 1]
    moved = LAYOUT.reorder(order)
    before, after = prefill_logits(engine, LAYOUT, method), prefill_logits(engine, moved, method)
    if method not in INVARIANT:
        assert (after[-1] - before[-1]).abs().max() > 1e-3
        return
    for slot, document in enumerate(order):
        left, right = after[moved.document_slice(slot)], before[LAYOUT.document_slice(document)]
        torch.testing.assert_close(left, right, rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("method", METHODS)
def test_documents_attend_as_the_mask_allows(engine: Engine, method: str) -> None:
    changed = TokenLayout(LAYOUT.prefix, ((71, 72, 73, 74), *LAYOUT.documents[1:]), LAYOUT.suffix)
    before, after = prefill_logits(engine, LAYOUT, method), prefill_logits(engine, changed, method)
    difference = (before - after)[LAYOUT.document_slice(2)].abs().max()
    assert (difference > 1e-6) == (METHODS[method].mask != "none")
    other_question = TokenLayout(LAYOUT.prefix, LAYOUT.documents, (81, 82, 83))
    after = prefill_logits(engine, other_question, method)
    assert torch.equal(before[: LAYOUT.documents_end], after[: LAYOUT.documents_end])


@pytest.mark.parametrize("method", METHODS)
def test_score_is_log_probability_of_answer(engine: Engine, method: str) -> None:
    texts = ["ab", "c", "hello"]
    for text, score in zip(texts, engine.score(LAYOUT, texts, methods=[method])[method], strict=True):
        longer = LAYOUT.extend(score.token_ids)
        logprobs = prefill_logits(engine, longer, method).log_softmax(-1)[LAYOUT.num_tokens - 1 : -1]
        expected = [float(row[token]) for row, token in zip(logprobs, score.token_ids, strict=True)]
        assert score.logprobs == pytest.approx(expected, abs=1e-5)
        assert score.text == text and score.total == pytest.approx(sum(expected), abs=1e-4)
    with pytest.raises(InputError):
        engine.score(LAYOUT, [""], methods=[method])


def test_generate_yields_events_in_order(engine: Engine) -> None:
    events = list(engine.generate(LAYOUT, methods=["vanilla", "pine"], max_new_tokens=3, stop_at_eos=False))
    progress = [event for event in events if isinstance(event, PrefillProgress)]
    assert [(event.method, event.layers_done, event.num_layers) for event in progress] == [
        ("vanilla", 0, 2), ("vanilla", 1, 2), ("pine", 0, 2), ("pine", 1, 2)
    ]  # fmt: skip
    assert [event.method for event in events if isinstance(event, PrefillDone)] == ["vanilla", "pine"]
    assert isinstance(events[-1], RunFinished)
    answers = [event.answer for event in events if isinstance(event, GenerationFinished)]
    assert {answer.method: answer for answer in answers} == events[-1].result.answers
    for answer in answers:
        tokens = [one for one in events if isinstance(one, TokenGenerated) and one.method == answer.method]
        assert [(token.step, token.token_id) for token in tokens] == list(enumerate(answer.token_ids))
        assert tokens[-1].text == answer.text


@pytest.mark.parametrize(
    ("stated", "fallback", "expected"),
    [(7, 2, {7}), ([7, 8], 2, {7, 8}), (None, 9, {9}), (None, [9, 11], {9, 11}), (None, None, set())],
)
def test_stop_token_ids_are_those_of_model_and_tokenizer(
    tiny_llama: TinyLlama, tmp_path: Path, stated: Any, fallback: Any, expected: set[int]
) -> None:
    model, tokenizer = tiny_llama(layers=1), letter_tokenizer()
    model.config.eos_token_id, model.generation_config.eos_token_id = fallback, stated
    assert Engine(model).stop_token_ids == expected
    assert Engine(model, stop_token_ids=()).stop_token_ids == set()
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    loaded = Engine.load(tmp_path).stop_token_ids
    assert loaded == Engine(model, tokenizer).stop_token_ids == expected | {tokenizer.eos_token_id}


def test_finished_answer_does_not_change_others(engine: Engine) -> None:
    options: dict[str, Any] = {"methods": ["vanilla", "pine"], "max_new_tokens": 6, "return_logits": True}
    full = engine.run(LAYOUT, **options, stop_at_eos=False)
    vanilla, pine = (full.answers[name].token_ids for name in ("vanilla", "pine"))
    stop = next(token for token in vanilla if token not in pine)
    result = Engine(engine.model, stop_token_ids=[stop]).run(LAYOUT, **options)
    assert result.answers["vanilla"].token_ids == vanilla[: vanilla.index(stop)]
    assert [answer.finish_reason for answer in result.answers.values()] == ["stop", "length"]
    assert torch.equal(result.logits["pine"], full.logits["pine"])


def test_closing_generate_stops_model_within_a_layer(tiny_llama: TinyLlama) -> None:
    engine = Engine(tiny_llama(layers=8))
    with count_tokens(engine.patched_models[0].network.model.layers[0].mlp) as calls:
        run = engine.generate(LAYOUT, methods=["vanilla"], max_new_tokens=400, stop_at_eos=False)
        next(event for event in run if isinstance(event, TokenGenerated))
        run.close()
        num_calls = len(calls)
        time.sleep(0.2)
    assert len(calls) == num_calls < 100


def test_error_in_model_reaches_caller(tiny_llama: TinyLlama) -> None:
    engine = Engine(tiny_llama())

    def fail(*_: Any) -> None:
        raise RuntimeError("out of memory")

    engine.patched_models[0].network.model.layers[1].register_forward_hook(fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        engine.run(LAYOUT)


def test_trace_changes_no_answer(engine: Engine) -> None:
    plain = engine.run(LAYOUT, max_new_tokens=3, stop_at_eos=False)
    traced = engine.run(LAYOUT, max_new_tokens=3, stop_at_eos=False, trace=True)
    assert plain.traces == {} and traced.traces.keys() == plain.answers.keys()
    assert [a.token_ids for a in traced.answers.values()] == [a.token_ids for a in plain.answers.values()]
    pine = traced.traces["pine"]
    assert pine.suffix_starts.shape == (2, 4, LAYOUT.suffix_length + 2, 4)
    assert pine.suffix_importance is not None
    ends = pine.suffix_starts + LAYOUT.lengths
    assert (pine.suffix_importance.argmax(-1) == ends.argmax(-1)).all()


def test_prompt_longer_than_context_raises(tiny_llama: TinyLlama) -> None:
    engine = Engine(tiny_llama(max_context_length=20))
    for max_new_tokens in (3, -1):
        with pytest.raises(InputError):
            engine.generate(LAYOUT, max_new_tokens=max_new_tokens)
    assert engine.run(LAYOUT, max_new_tokens=2, methods="pine", stop_at_eos=False).answers["pine"].token_ids
    answer = engine.run(LAYOUT, max_new_tokens=0).answers["pine"]
    assert (answer.token_ids, answer.finish_reason) == ((), "length")
