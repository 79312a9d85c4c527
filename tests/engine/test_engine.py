"""Runs and scores: against a reference and the identities of docs/methods.md, and invalid arguments."""

import gc
import inspect
import itertools
import math
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st

import pine_engine as pine
from pine_engine import METHODS, Engine, InputError, TokenLayout
from pine_engine.engine import prepared_model
from pine_engine.engine.events import trace_report
from pine_engine.engine.run import RunOptions, prepare_run
from pine_engine.models.load import load, stop_token_ids
from pine_engine.scheduling.scheduler import compute_alone
from pine_engine.scheduling.worker import NO_CONTROL
from tests.engine.conftest import LAYOUT
from tests.support.families import TinyLlama
from tests.support.forward import prefill_logits, watch_caches
from tests.support.reference import PLANNED, exact_llama, reference_logits
from tests.support.tiers import first_daily
from tests.support.tokenizers import letter_tokenizer

WITHOUT_PREFIX = replace(LAYOUT, prefix=())
"""As of a model without a BOS token."""


INVARIANT = [name for name, method in METHODS.items() if method.is_order_invariant]
LOGITS: dict[str, Any] = {"max_new_tokens": 3, "return_logits": True, "stop_at_eos": False}


ROUNDING = 1e-10
"""Float64: sums of some hundred terms in another order."""

FLOAT32_LOGITS = 1e-6
"""Returned logits are float32: half a unit in the last place of numbers up to about 10."""


@pytest.fixture(scope="module")
def engine(tiny_llama: TinyLlama) -> Engine:
    return Engine(exact_llama(tiny_llama), letter_tokenizer())


@pytest.mark.parametrize(
    ("layout", "heads", "kv_heads"), first_daily([(LAYOUT, 4, 2), (LAYOUT, 4, 1), (WITHOUT_PREFIX, 4, 4)])
)
def test_prefill_is_as_defined(tiny_llama: TinyLlama, layout: TokenLayout, heads: int, kv_heads: int) -> None:
    model = exact_llama(tiny_llama, layers=3, heads=heads, kv_heads=kv_heads)
    engine = Engine(model)
    logits = {method: prefill_logits(engine, layout, method) for method in PLANNED}
    for method in PLANNED:
        with torch.inference_mode():
            expected = reference_logits(model, layout, method)
        torch.testing.assert_close(logits[method], expected, rtol=0, atol=ROUNDING)
    for left, right in itertools.combinations(logits.values() if layout.prefix else (), 2):
        assert (left[-1] - right[-1]).abs().max() > 1e-3  # the methods differ


def test_trace_agrees_with_run(engine: Engine) -> None:
    options: dict[str, Any] = {"methods": "all", "max_new_tokens": 3}
    plain, traced = (engine.run(WITHOUT_PREFIX, **options, trace=trace) for trace in (False, True))
    assert not plain.traces
    for method, answer in plain.answers.items():
        shares = traced.traces[method].suffix_attention
        assert shares is not None and not shares[..., 0].any()
        assert shares.sum(-1) == pytest.approx(1.0, abs=1e-6)
        assert answer.token_ids == traced.answers[method].token_ids


def test_trace_report_is_of_the_last_prompt_token(engine: Engine) -> None:
    options: dict[str, Any] = {"methods": ["vanilla", "pine"], "trace": True, "stop_at_eos": False}
    prompt_only = engine.run(LAYOUT, **options, max_new_tokens=0).traces
    for entry in trace_report(engine.run(LAYOUT, **options, max_new_tokens=3))["results"]:
        trace = prompt_only[entry["method"]]
        assert trace.suffix_attention is not None
        np.testing.assert_allclose(entry["attention"], trace.suffix_attention[:, :, -1], rtol=1e-6)
        assert entry["starts"] == trace.suffix_starts[:, :, -1].tolist()


@pytest.mark.parametrize("method", PLANNED)
def test_decoding_equals_prefill_of_longer_prompt(engine: Engine, method: str) -> None:
    result = engine.run(LAYOUT, methods=[method], **LOGITS | {"max_new_tokens": 5})
    ids = result.answers[method].token_ids
    longer = LAYOUT.extend(ids[:-1])
    expected = prefill_logits(engine, longer, method)[longer.documents_end :]
    torch.testing.assert_close(result.logits[method], expected.float(), rtol=0, atol=FLOAT32_LOGITS)
    assert ids == tuple(expected[LAYOUT.suffix_length - 1 :].argmax(-1).tolist())


@st.composite
def layouts_with_order(draw: st.DrawFn) -> tuple[TokenLayout, list[int]]:
    ids = st.integers(3, 96)
    documents = draw(st.lists(st.lists(ids, min_size=1, max_size=12).map(tuple), min_size=2, max_size=7))
    prefix = draw(st.lists(ids, max_size=16))
    # A stream without a document needs two tokens.
    suffix = draw(st.lists(ids, min_size=1 if prefix else 2, max_size=4))
    scores = draw(st.lists(st.sampled_from([-1.0, 0.5]), min_size=len(documents), max_size=len(documents)))
    layout = TokenLayout(tuple(prefix), tuple(documents), tuple(suffix), scores=tuple(scores))
    return layout, draw(st.permutations(range(len(documents))))


@pytest.fixture(
    scope="module",
    params=first_daily(
        [((torch.float32, 40),), ((torch.float32, 24),), ((torch.float32, 8),), ((torch.bfloat16, 8),)]
    ),
    ids=str,
)
def small_heads(request: pytest.FixtureRequest, tiny_llama: TinyLlama) -> Engine:
    """Return an engine whose kernels compute the end of a range, and unaligned rows, in another way."""
    dtype, head_dim = request.param
    return Engine(tiny_llama(dtype=dtype, head_dim=head_dim))


@settings(max_examples=settings().max_examples // 8, suppress_health_check=[HealthCheck.too_slow])
@given(case=layouts_with_order())
def test_methods_are_identical_in_any_order(small_heads: Engine, case: tuple[TokenLayout, list[int]]) -> None:
    layout, order = case
    one = small_heads.run(layout, methods=INVARIANT, **LOGITS)
    other = small_heads.run(layout.reorder(order), methods=INVARIANT, **LOGITS)
    for method, logits in one.logits.items():
        assert torch.equal(logits, other.logits[method])


@pytest.mark.parametrize("method", PLANNED)
def test_score_is_log_probability_of_answer(engine: Engine, method: str) -> None:
    texts = ["ab", "c", "hello", "c"]
    for text, score in zip(texts, engine.score(LAYOUT, texts, methods=[method])[method], strict=True):
        logprobs = prefill_logits(engine, LAYOUT.extend(score.token_ids), method).log_softmax(-1)
        steps = range(LAYOUT.num_tokens - 1, len(logprobs) - 1)
        expected = logprobs[steps, list(score.token_ids)].tolist()
        assert score.logprobs == pytest.approx(expected, abs=1e-5)
        assert score.text == text and score.total == pytest.approx(sum(expected), abs=1e-4)
    with pytest.raises(InputError):
        engine.score(LAYOUT, [""], methods=[method])


def test_generate_yields_events_in_order(engine: Engine) -> None:
    methods = ["vanilla", "pine", "nbce"]
    events = list(engine.generate(LAYOUT, methods=methods, max_new_tokens=3, stop_at_eos=False))
    num_streams = LAYOUT.num_documents + 1  # each document, and none
    passes = [("vanilla", 1), ("pine", 1), *(("nbce", number + 1) for number in range(num_streams))]
    assert [event for event in events if isinstance(event, pine.PrefillProgress)] == [
        pine.PrefillProgress(method, layer, 2, 0.0, number) for method, number in passes for layer in (0, 1)
    ]
    assert [event.method for event in events if isinstance(event, pine.PrefillDone)] == methods
    assert isinstance(events[-1], pine.RunFinished)
    answers = [event.answer for event in events if isinstance(event, pine.GenerationFinished)]
    assert {answer.method: answer for answer in answers} == events[-1].result.answers
    for answer in answers:
        tokens = [
            one for one in events if isinstance(one, pine.TokenGenerated) and one.method == answer.method
        ]
        assert [(token.step, token.token_id) for token in tokens] == list(enumerate(answer.token_ids))
        assert tokens[-1].text == answer.text


@pytest.mark.parametrize(
    ("stated", "fallback", "expected"),
    [(7, 2, {7}), ([7, 8], 2, {7, 8}), (None, 9, {9}), (None, [9, 11], {9, 11}), (None, None, set())],
)
def test_stop_token_ids_come_from_model_and_tokenizer(
    tiny_llama: TinyLlama, tmp_path: Path, stated: Any, fallback: Any, expected: set[int]
) -> None:
    model, tokenizer = tiny_llama(layers=1), letter_tokenizer()
    model.config.eos_token_id, model.generation_config.eos_token_id = fallback, stated
    assert stop_token_ids(model, None) == expected
    assert stop_token_ids(model, tokenizer) == expected | {tokenizer.eos_token_id}
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert load(tmp_path).stop_token_ids == expected | {tokenizer.eos_token_id}
    if stated == 7:
        assert Engine(model).stop_token_ids == expected


@pytest.mark.parametrize("dtype", first_daily([torch.float32, torch.bfloat16, torch.float64]))
def test_run_bytes_bound_caches_and_logits(
    dtype: torch.dtype, tiny_llama: TinyLlama, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Engine, "shares_steps", True)
    engine = Engine(tiny_llama(dtype=dtype))
    for return_logits in (False, True):
        options: dict[str, Any] = {"max_new_tokens": 20, "return_logits": return_logits}
        run = prepare_run(engine, LAYOUT, methods="all", **options)
        for answer in compute_alone(run.prefill(NO_CONTROL)):
            num_bytes = engine.run_bytes(LAYOUT, answer.method, **options)
            assert 1 <= num_bytes / answer.num_bytes(20) < 1.5, answer.method
    monkeypatch.setattr(prepared_model, "BYTES_AT_ONCE", 3.5 * num_bytes)
    sizes = [engine.run_bytes(LAYOUT, answer.method, **options, num_orders=count) for count in (2, 24)]
    assert sizes == [2 * num_bytes, 4.5 * num_bytes]
    monkeypatch.setattr(Engine, "shares_steps", False)
    assert engine.run_bytes(LAYOUT, "pine", 20) == math.inf


def test_finished_answer_does_not_change_others(engine: Engine) -> None:
    options: dict[str, Any] = {"methods": ["vanilla", "pine"], "max_new_tokens": 6, "return_logits": True}
    full = engine.run(LAYOUT, **options, stop_at_eos=False)
    vanilla, pine = (full.answers[name].token_ids for name in ("vanilla", "pine"))
    stop = next(token for token in vanilla if token not in pine)
    result = Engine(engine.model, stop_token_ids=[stop]).run(LAYOUT, **options)
    assert result.answers["vanilla"].token_ids == vanilla[: vanilla.index(stop)]
    assert [answer.finish_reason for answer in result.answers.values()] == ["stop", "length"]
    assert torch.equal(result.logits["pine"], full.logits["pine"])


OPTIONS: dict[str, Any] = {"methods": ["vanilla", "pine"], "max_new_tokens": 5}
ANSWER = pine.Answer("pine", "ab", (5, 6), (-1.0, -1.0), 0.0, 0.0, "length")
STREAMS: dict[str, Callable[[Engine], Iterator[Any]]] = {
    "generate": lambda engine: engine.generate(LAYOUT, **OPTIONS, stop_at_eos=False),
    "sweep": lambda engine: pine.sweep_document(
        engine, LAYOUT, document=0, answer="ab", methods=OPTIONS["methods"]
    ),
    "leave_one_out": lambda engine: pine.score_without_documents(
        engine, pine.RunResult(LAYOUT, {"pine": ANSWER}, {})
    ),
}


@pytest.mark.parametrize("last", [2, 4, 8])
@pytest.mark.parametrize("start", STREAMS.values(), ids=STREAMS)
def test_closing_stops_in_layer(engine: Engine, start: Callable[[Engine], Iterator[Any]], last: int) -> None:
    """One layer is blocked while the stream is closed: of a prefill, a decoding step or a score."""
    started: list[None] = []
    reached, released = threading.Event(), threading.Event()

    def hold(*_: object) -> None:
        started.append(None)
        if len(started) == last:
            reached.set()
            assert released.wait(30)

    hooks = [layer.register_forward_pre_hook(hold) for layer in engine.patched_models[0].network.model.layers]
    events: Any = start(engine)
    next(events)
    assert reached.wait(30)
    threading.Timer(0.2, released.set).start()  # after close() has set the stop flag
    events.close()
    for hook in hooks:
        hook.remove()
    assert len(started) == last


def test_ended_runs_need_no_garbage_collection(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise pine.ModelError("failed")

    num_caches, alive = watch_caches(monkeypatch), {}
    options: dict[str, Any] = {"methods": ["nia", "pcw", "pine"], "max_new_tokens": 9, "stop_at_eos": False}
    gc.collect()
    gc.disable()
    try:
        engine.run(LAYOUT, **options)
        alive["finished"] = num_caches()
        events: Any = engine.generate(LAYOUT, **options)
        assert any(isinstance(event, pine.TokenGenerated) for event in events)
        events.close()
        alive["stopped"] = num_caches()
        for function in ("passes.extend", "generation.check_finite"):
            monkeypatch.setattr(f"pine_engine.engine.{function}", fail)
            with pytest.raises(pine.ModelError):
                engine.run(LAYOUT, **options)
            alive[function] = num_caches()
    finally:
        gc.enable()
    assert len(alive) == 4 and not any(alive.values()), alive


def test_prompt_longer_than_context_raises(tiny_llama: TinyLlama) -> None:
    engine = Engine(tiny_llama(max_context_length=20))
    for max_new_tokens in (3, -1):
        with pytest.raises(InputError):
            engine.generate(LAYOUT, max_new_tokens=max_new_tokens)
    assert engine.run(LAYOUT, max_new_tokens=2, methods="pine", stop_at_eos=False).answers["pine"].token_ids
    answer = engine.run(LAYOUT, max_new_tokens=0).answers["pine"]
    assert (answer.token_ids, answer.finish_reason) == ((), "length")


PARTS: dict[str, Any] = {
    "question": "Who?", "documents": ["red", {"title": "G", "text": "green"}, pine.Document("blue", "B")],
    "task": "retrieval_qa_numbered", "instruction": "Say.", "system": "Be brief.",
}  # fmt: skip


def test_parts_become_prompt_of_task(engine: Engine) -> None:
    parts = {name: value for name, value in PARTS.items() if name != "task"}
    prompt = pine.TASKS[PARTS["task"]].prompt(engine.tokenizer, **parts)
    layout = engine.tokenize(prompt)
    assert engine.run(**PARTS, **OPTIONS).layout == layout
    *_, last = engine.generate(**PARTS, **OPTIONS)
    assert isinstance(last, pine.RunFinished) and last.result.layout == layout
    assert engine.shuffle(**PARTS, **OPTIONS, count=1).first.layout == layout
    scores = engine.score(**PARTS, continuations="a", methods="pine")
    assert scores == engine.score(prompt, "a", methods="pine")
    default = pine.TASKS["retrieval_qa"].prompt(engine.tokenizer, question="Who?", documents="red")
    assert engine.run(question="Who?", documents="red", **OPTIONS).layout == engine.tokenize(default)


def test_run_documents_all_options() -> None:
    assert re.findall(r"- `(\w+)`: ", inspect.getdoc(Engine.run) or "") == [*RunOptions.__annotations__]


def test_a_fork_waits_for_the_tokenizer(
    tiny_llama: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks: dict[str, Callable[[], Any]] = {}
    monkeypatch.setattr("os.register_at_fork", lambda **values: hooks.update(values))
    engine = Engine(tiny_llama(), letter_tokenizer())
    engine.allow_forks()
    hooks["before"]()
    reading = threading.Thread(target=engine.tokenize_answer, args=("abc",))
    reading.start()
    reading.join(0.2)
    assert reading.is_alive()
    hooks["after_in_parent"]()
    reading.join(10)
    assert not reading.is_alive()
    hooks["before"]()
    hooks["after_in_child"]()
    assert engine.tokenize_answer("abc")
