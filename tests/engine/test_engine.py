"""The engine against an independent reference, and the identities of docs/specification.md section 10."""

import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import LlamaForCausalLM

from pine_engine.engine import passes
from pine_engine.engine.engine import Engine
from pine_engine.engine.events import (
    GenerationFinished,
    PrefillDone,
    PrefillProgress,
    RunFinished,
    TokenGenerated,
)
from pine_engine.errors import InputError
from pine_engine.methods.table import METHODS
from pine_engine.network.thread_tuner import torch_num_threads
from pine_engine.prompts.layout import TokenLayout
from tests.support.reference import exact_llama, reference_logits
from tests.support.tokenizers import letter_tokenizer

TinyLlama = Callable[..., LlamaForCausalLM]

LAYOUT = TokenLayout((5, 9, 60), ((11, 12, 13, 14), (21, 22), (31, 32, 33, 34, 35), (41,)), (51, 52, 53))

ROUNDING = 1e-10
"""Float64: sums of some hundred terms in another order."""


PROMISING = [name for name, method in METHODS.items() if method.is_order_invariant]

KEPT_AS_FLOAT32 = 1e-6
"""Logits that a result keeps are float32: half a unit in the last place of numbers up to about 10."""


@pytest.fixture(scope="module")
def engine(tiny_llama: TinyLlama) -> Engine:
    return Engine(exact_llama(tiny_llama))


@torch.inference_mode()
def all_logits(engine: Engine, layout: TokenLayout, method: str) -> Tensor:
    return passes.prefill(engine.patched_models, layout, METHODS[method], room=0, logits_to_keep=0)[1]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 2), (4, 1), (4, 4)])
def test_logits_are_those_of_the_definition(
    tiny_llama: TinyLlama, method: str, heads: int, kv_heads: int
) -> None:
    own = exact_llama(tiny_llama, heads=heads, kv_heads=kv_heads)
    engine = Engine(exact_llama(tiny_llama, heads=heads, kv_heads=kv_heads))
    with torch.inference_mode():
        expected = reference_logits(own, LAYOUT, method)
    torch.testing.assert_close(all_logits(engine, LAYOUT, method), expected, rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("method", METHODS)
def test_one_document_is_vanilla(engine: Engine, method: str) -> None:
    layout = TokenLayout((5, 9, 60), (tuple(range(11, 20)),), (51, 52, 53))
    expected = all_logits(engine, layout, "vanilla")
    torch.testing.assert_close(all_logits(engine, layout, method), expected, rtol=0, atol=ROUNDING)


def test_methods_differ_when_there_are_more_documents(engine: Engine) -> None:
    logits = [all_logits(engine, LAYOUT, method)[-1] for method in METHODS]
    for left, right in itertools.combinations(logits, 2):
        assert (left - right).abs().max() > 1e-3


def test_vanilla_is_the_models_own_attention(tiny_llama: TinyLlama, engine: Engine) -> None:
    with torch.inference_mode():
        expected = exact_llama(tiny_llama)(torch.tensor(LAYOUT.ids)[None]).logits[0]
    torch.testing.assert_close(all_logits(engine, LAYOUT, "vanilla"), expected, rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("method", METHODS)
def test_decoding_equals_reading_everything_again(engine: Engine, method: str) -> None:
    result = engine.run(LAYOUT, methods=[method], max_new_tokens=5, return_logits=True, stop_at_eos=False)
    ids = result.answers[method].token_ids
    longer = LAYOUT.extend(ids[:-1])
    expected = all_logits(engine, longer, method)[longer.documents_end :]
    torch.testing.assert_close(result.logits[method], expected.float(), rtol=0, atol=KEPT_AS_FLOAT32)
    assert ids == tuple(expected[LAYOUT.suffix_length - 1 :].argmax(-1).tolist())


def test_methods_answer_together_as_they_do_alone(engine: Engine) -> None:
    together = engine.run(LAYOUT, methods=["all"], max_new_tokens=6, stop_at_eos=False)
    assert list(together.answers) == list(METHODS)
    for method in METHODS:
        alone = engine.run(LAYOUT, methods=[method], max_new_tokens=6, stop_at_eos=False)
        assert together.answers[method].token_ids == alone.answers[method].token_ids
        assert together.answers[method].logprobs == pytest.approx(alone.answers[method].logprobs, abs=1e-5)


@st.composite
def layouts_with_order(draw: st.DrawFn) -> tuple[TokenLayout, list[int]]:
    ids = st.integers(3, 96)
    document = st.lists(ids, min_size=1, max_size=12).map(tuple)
    documents = draw(st.lists(document, min_size=2, max_size=7))
    prefix = draw(st.lists(ids, max_size=16))
    suffix = draw(st.lists(ids, min_size=1, max_size=4))
    layout = TokenLayout(tuple(prefix), tuple(documents), tuple(suffix))
    return layout, draw(st.permutations(range(len(documents))))


@pytest.mark.parametrize(
    ("dtype", "head_dim"),
    [(torch.float32, 8), (torch.float32, 24), (torch.float32, 32), (torch.float32, 40), (torch.bfloat16, 8)],
)
def test_order_changes_no_bit_of_methods_that_promise_it(
    tiny_llama: TinyLlama, dtype: torch.dtype, head_dim: int
) -> None:
    """Small heads: kernels treat the end of a range, and rows that are not aligned, otherwise."""
    engine = Engine(tiny_llama(dtype=dtype, head_dim=head_dim))

    @settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow])
    @given(case=layouts_with_order())
    def check(case: tuple[TokenLayout, list[int]]) -> None:
        layout, order = case
        options: dict[str, Any] = {"max_new_tokens": 3, "return_logits": True, "stop_at_eos": False}
        one = engine.run(layout, methods=PROMISING, **options)
        other = engine.run(layout.reorder(order), methods=PROMISING, **options)
        for method, logits in one.logits.items():
            assert torch.equal(logits, other.logits[method])

    check()


@pytest.mark.parametrize("threads", [5, 6, 8])
def test_order_changes_no_bit_whatever_the_number_of_threads(tiny_llama: TinyLlama, threads: int) -> None:
    """Each thread computes the last few elements of its part of an activation otherwise."""
    engine = Engine(tiny_llama(head_dim=96, layers=1))
    generator = torch.Generator().manual_seed(threads)
    documents = [tuple(torch.randint(3, 97, (n,), generator=generator).tolist()) for n in (61, 40, 33, 52)]
    with torch_num_threads(threads):
        for suffix, method in itertools.product([(51, 52), (51, 52, 53)], ["pcw", "pine"]):
            layout = TokenLayout((5, 9, 60), tuple(documents), suffix)
            moved = layout.reorder([2, 0, 3, 1])
            before, after = all_logits(engine, layout, method), all_logits(engine, moved, method)
            for place, document in enumerate([2, 0, 3, 1]):
                own, its = before[layout.document_slice(document)], after[moved.document_slice(place)]
                assert torch.equal(own, its)


def test_documents_with_the_same_text_do_not_break_invariance(tiny_llama: TinyLlama) -> None:
    engine = Engine(tiny_llama(head_dim=32))
    twin, other, third = (11, 12, 13), (21, 22), (31, 32, 33)
    layout = TokenLayout((5,), (twin, other, twin, third), (51, 52))
    logits = [
        engine.run(layout.reorder(order), methods=PROMISING, max_new_tokens=3, return_logits=True).logits
        for order in itertools.permutations(range(4))
    ]
    for method in PROMISING:
        assert all(torch.equal(logits[0][method], each[method]) for each in logits)


@pytest.mark.parametrize("method", [name for name in METHODS if name not in PROMISING])
def test_control_order_changes_all_others(engine: Engine, method: str) -> None:
    moved = all_logits(engine, LAYOUT.reorder([3, 2, 1, 0]), method)[-1]
    assert (moved - all_logits(engine, LAYOUT, method)[-1]).abs().max() > 1e-3


@pytest.mark.parametrize("method", PROMISING)
def test_document_rows_move_with_their_document(engine: Engine, method: str) -> None:
    order = [2, 0, 3, 1]
    moved = LAYOUT.reorder(order)
    before, after = all_logits(engine, LAYOUT, method), all_logits(engine, moved, method)
    for place, document in enumerate(order):
        left, right = after[moved.document_slice(place)], before[LAYOUT.document_slice(document)]
        torch.testing.assert_close(left, right, rtol=0, atol=ROUNDING)


@pytest.mark.parametrize(
    ("method", "sees"), [(name, method.mask != "none") for name, method in METHODS.items()]
)
def test_who_sees_whom(engine: Engine, method: str, sees: bool) -> None:
    """Changes document 1 and looks at document 3; changes the suffix and looks at all documents."""
    documents = list(LAYOUT.documents)
    documents[0] = (71, 72, 73, 74)
    changed = TokenLayout(LAYOUT.prefix, tuple(documents), LAYOUT.suffix)
    rows = LAYOUT.document_slice(2)
    difference = (all_logits(engine, changed, method) - all_logits(engine, LAYOUT, method))[rows].abs().max()
    assert (difference > 1e-6) == sees

    question = TokenLayout(LAYOUT.prefix, LAYOUT.documents, (81, 82, 83))
    before, after = all_logits(engine, LAYOUT, method), all_logits(engine, question, method)
    assert torch.equal(before[: LAYOUT.documents_end], after[: LAYOUT.documents_end])


@pytest.mark.parametrize("method", METHODS)
def test_score_is_the_log_probability_of_reading_the_answer_along(engine: Engine, method: str) -> None:
    scorer = Engine(engine.model, letter_tokenizer())
    texts = ["ab", "c", "hello"]
    scores = scorer.score(LAYOUT, texts, methods=[method])[method]
    for text, score in zip(texts, scores, strict=True):
        longer = LAYOUT.extend(score.token_ids)
        logprobs = all_logits(engine, longer, method).log_softmax(-1)[LAYOUT.num_tokens - 1 : -1]
        expected = [float(row[token]) for row, token in zip(logprobs, score.token_ids, strict=True)]
        assert score.logprobs == pytest.approx(expected, abs=1e-5)
        assert score.total == pytest.approx(sum(expected), abs=1e-4)
        assert score.text == text
    with pytest.raises(InputError, match="the answer '' has no tokens"):
        scorer.score(LAYOUT, [""], methods=[method])


def test_events_come_in_order_and_end_with_the_result(engine: Engine) -> None:
    events = list(engine.generate(LAYOUT, methods=["vanilla", "pine"], max_new_tokens=3, stop_at_eos=False))
    progress = [event for event in events if isinstance(event, PrefillProgress)]
    assert [(event.method, event.layers_done) for event in progress] == [
        ("vanilla", 0), ("vanilla", 1), ("pine", 0), ("pine", 1)
    ]  # fmt: skip
    assert [event.method for event in events if isinstance(event, PrefillDone)] == ["vanilla", "pine"]
    assert len([event for event in events if isinstance(event, TokenGenerated)]) == 6
    assert isinstance(events[-1], RunFinished)
    answers = [event.answer for event in events if isinstance(event, GenerationFinished)]
    assert {answer.method: answer for answer in answers} == events[-1].result.answers


def test_an_answer_ends_at_the_end_of_the_turn(engine: Engine) -> None:
    ids = engine.run(LAYOUT, methods=["pine"], max_new_tokens=4, stop_at_eos=False).answers["pine"].token_ids
    stop = next(token for index, token in enumerate(ids) if token not in ids[:index] and index)
    stopping = Engine(engine.model, stop_token_ids=frozenset([stop]))
    answer = stopping.run(LAYOUT, methods=["pine", "vanilla"], max_new_tokens=4).answers["pine"]
    assert answer.token_ids == ids[: ids.index(stop)]
    assert answer.finish_reason == "stop"


@pytest.mark.parametrize(
    ("stated", "fallback", "expected"),
    [(7, 2, {7}), ([7, 8], 2, {7, 8}), (None, 9, {9}), (None, [9, 11], {9, 11}), (None, None, set())],
)
def test_engine_default_stop_ids_are_the_models_own(
    tiny_llama: TinyLlama, tmp_path: Path, stated: Any, fallback: Any, expected: set[int]
) -> None:
    model = tiny_llama(layers=1)
    model.config.eos_token_id, model.generation_config.eos_token_id = fallback, stated
    assert Engine(model).stop_token_ids == expected
    assert Engine(model, stop_token_ids=()).stop_token_ids == set()
    tokenizer = letter_tokenizer()
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    loaded = Engine.load(tmp_path).stop_token_ids
    assert loaded == Engine(model, tokenizer).stop_token_ids == expected | {tokenizer.eos_token_id}


def test_other_answers_go_on_unchanged_when_one_has_ended(engine: Engine) -> None:
    """Bits of a row may depend on the batch's shape, so a row that ends must keep its place."""
    options: dict[str, Any] = {"methods": ["vanilla", "pine"], "max_new_tokens": 6, "return_logits": True}
    full = engine.run(LAYOUT, **options, stop_at_eos=False)
    vanilla, pine = (full.answers[name].token_ids for name in ("vanilla", "pine"))
    stop = next(token for token in vanilla if token not in pine)
    result = Engine(engine.model, stop_token_ids=frozenset([stop])).run(LAYOUT, **options)
    assert len(result.answers["vanilla"].token_ids) < 6
    assert torch.equal(result.logits["pine"], full.logits["pine"])


def test_closing_the_generator_stops_the_model_within_a_layer(tiny_llama: TinyLlama) -> None:
    engine = Engine(tiny_llama(layers=8))
    calls = []
    mlp = (
        engine.patched_models[0]
        .network.model.layers[0]
        .mlp.register_forward_hook(lambda *_: calls.append(time.monotonic()))
    )
    run = engine.generate(LAYOUT, methods=["vanilla"], max_new_tokens=400, stop_at_eos=False)
    for event in run:
        if isinstance(event, TokenGenerated):
            break
    run.close()
    made = len(calls)
    time.sleep(0.2)
    mlp.remove()
    assert len(calls) == made < 100


def test_an_error_in_the_model_reaches_the_caller(tiny_llama: TinyLlama) -> None:
    engine = Engine(tiny_llama())

    def fail(*_: Any) -> None:
        raise RuntimeError("out of memory")

    engine.patched_models[0].network.model.layers[1].register_forward_hook(fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        engine.run(LAYOUT)


def test_trace_costs_nothing_in_the_result_and_says_where_documents_stand(engine: Engine) -> None:
    plain = engine.run(LAYOUT, max_new_tokens=3, stop_at_eos=False)
    assert plain.traces == {}
    traced = engine.run(LAYOUT, max_new_tokens=3, stop_at_eos=False, trace=True)
    assert {name: a.token_ids for name, a in traced.answers.items()} == {
        name: a.token_ids for name, a in plain.answers.items()
    }
    pine = traced.traces["pine"]
    rows = LAYOUT.suffix_length + 2
    assert pine.document_starts.shape == (2, 4, 4, 4)
    assert pine.suffix_starts.shape == (2, 4, rows, 4)
    assert pine.suffix_importance is not None and pine.document_importance is not None
    ends = pine.suffix_starts + LAYOUT.lengths
    closest = ends.argmax(-1)
    assert (pine.suffix_importance.argmax(-1) == closest).all()
    assert (ends.max(-1) == LAYOUT.documents_end).all()
    sums = (pine.suffix_importance * LAYOUT.lengths).sum(-1)
    assert sums == pytest.approx(1.0, abs=1e-5)
    vanilla = traced.traces["vanilla"]
    assert vanilla.suffix_starts.shape == (1, 1, rows, 4)
    assert vanilla.document_starts[0, 0].tolist() == [
        [3, -1, -1, -1], [3, 7, -1, -1], [3, 7, 9, -1], [3, 7, 9, 14]
    ]  # fmt: skip


def test_prompts_that_do_not_fit_are_refused(tiny_llama: TinyLlama) -> None:
    engine = Engine(tiny_llama(max_context_length=20))
    sentence = "the prompt has 18 tokens and the answer may take 3, but the model reads 20 in all"
    with pytest.raises(InputError, match=sentence):
        engine.generate(LAYOUT, max_new_tokens=3)
    with pytest.raises(InputError, match="the answer length is -1"):
        engine.generate(LAYOUT, max_new_tokens=-1)
    assert engine.run(LAYOUT, max_new_tokens=2, methods=["pine"], stop_at_eos=False).answers["pine"].token_ids
    assert engine.run(LAYOUT, max_new_tokens=0).answers["pine"].token_ids == ()


def test_interleaved_rotation_is_recognised_and_gives_the_same_as_one_document() -> None:
    from transformers import CohereConfig, CohereForCausalLM

    torch.manual_seed(0)
    eager: dict[str, Any] = {"attn_implementation": "eager"}
    config = CohereConfig(
        vocab_size=97, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, initializer_range=0.2, **eager,
    )  # fmt: skip
    engine = Engine(CohereForCausalLM(config).eval())
    assert engine.patched_models[0].ropes[0].pairing == "interleaved"
