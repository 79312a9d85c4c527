"""Streams equal runs of their own, and their merging equals its formula."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from pine_engine import METHODS, Engine, InputError, Method, ModelError, PrefixCache, TokenLayout
from pine_engine.attention.state import SequenceState
from pine_engine.engine import passes, streams
from pine_engine.engine.streams import MERGES, stream_layouts, truncated_entropies
from tests.support.errors import has_field
from tests.support.families import FAMILIES, TinyLlama, make

LAYOUT = TokenLayout((5, 9, 60), ((31, 32, 33), (21, 22), (41, 42, 43, 44)), (51, 52, 53))
OPTIONS: dict[str, Any] = {"max_new_tokens": 5, "stop_at_eos": False, "return_logits": True}
STREAMS = [name for name, row in METHODS.items() if row.splits_documents]
BUCKETS = [name for name, row in METHODS.items() if row.rope_bases]


@pytest.fixture(scope="module")
def engine(tiny_llama: TinyLlama) -> Engine:
    return Engine(tiny_llama(dtype=torch.float64))


@pytest.mark.parametrize("prefix", [(5, 9, 60), ()])
def test_each_stream_reads_one_document(prefix: tuple[int, ...]) -> None:
    empty, *streams = stream_layouts(TokenLayout(prefix, LAYOUT.documents, LAYOUT.suffix))
    assert empty.ids == (*prefix, *LAYOUT.suffix)
    assert [stream.documents for stream in streams] == [(ids,) for ids in sorted(LAYOUT.documents)]
    assert {(stream.prefix, stream.suffix) for stream in streams} == {(prefix, LAYOUT.suffix)}


def test_an_empty_stream_needs_two_tokens(engine: Engine) -> None:
    with pytest.raises(InputError, check=has_field("prompt")):
        engine.run(TokenLayout((), ((1,), (2,)), (3,)), methods="nbce")


def merged_by_hand(name: str, logprobs: list[np.ndarray[Any, Any]], last: int | None) -> Any:
    """ZOO 2.4 with numpy, of the streams without a document and with each."""
    prior, *documents = logprobs
    if name == "ensemble":
        return np.logaddexp.reduce(documents), None
    if name == "naive_bayes":
        return np.sum(documents, axis=0) - (len(documents) - 1) * prior, None

    def kept(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        order = np.argsort(values)[::-1]
        above = np.cumsum(np.exp(values[order]))
        tokens = order[: int(np.searchsorted(above, 0.95)) + 1]
        return np.isin(np.arange(len(values)), tokens)

    entropies = [-sum(math.exp(v) * v for v in values[kept(values)]) for values in documents]
    if last is not None:
        entropies[last] -= 0.1
    choice = int(np.argmin(entropies))
    chosen = documents[choice]
    scores = np.where(kept(prior), 1.25 * chosen - 0.25 * prior, chosen)
    return np.where(kept(chosen), scores, -np.inf), choice


@pytest.mark.parametrize("name", STREAMS)
def test_answer_is_merged_from_runs_of_single_documents(engine: Engine, name: str) -> None:
    answer = engine.run(LAYOUT, methods=name, **OPTIONS)
    ids = answer.answers[name].token_ids
    empty, *streams = stream_layouts(LAYOUT)
    single = []
    for stream in (empty, *streams):
        result = engine.run(stream.extend(ids[:-1]), methods="vanilla", **OPTIONS | {"max_new_tokens": 0})
        single.append(result.logits["vanilla"][-5:].double().log_softmax(-1).numpy())
    choice = None
    for step, token in enumerate(ids):
        scores, choice = merged_by_hand(name, [logprobs[step] for logprobs in single], choice)
        merged = torch.from_numpy(scores).log_softmax(-1)
        assert token == int(merged.argmax())
        found = answer.logits[name][LAYOUT.suffix_length - 1 + step].double().log_softmax(-1)
        assert torch.allclose(found, merged, atol=1e-5)


@pytest.mark.parametrize("name", [*STREAMS, *BUCKETS])
def test_methods_in_a_run_do_not_change_each_other(engine: Engine, name: str) -> None:
    together = engine.run(LAYOUT, methods=["vanilla", name, "pine"], **OPTIONS)
    alone = engine.run(LAYOUT, methods=[name], **OPTIONS)
    assert together.answers[name].token_ids == alone.answers[name].token_ids
    expected = engine.run(LAYOUT, methods=["vanilla", "pine"], **OPTIONS).answers
    assert [together.answers[one].token_ids for one in expected] == [
        one.token_ids for one in expected.values()
    ]


@pytest.mark.parametrize("name", STREAMS)
def test_scores_are_those_of_the_answer(engine: Engine, name: str) -> None:
    answer = engine.run(LAYOUT, methods=name, **OPTIONS).answers[name]
    comparison = engine.shuffle(LAYOUT, methods=name, max_new_tokens=5, stop_at_eos=False).comparisons[-1][
        name
    ]
    assert comparison.bitwise_identical
    assert comparison.reference_logprob == pytest.approx(sum(answer.logprobs), abs=1e-5)


def test_one_document_and_equal_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "CONTRAST", 0.0)
    monkeypatch.setattr(streams, "TOP_P", 1.0)
    logprobs = torch.tensor([[0.5, 0.3, 0.2], [0.6, 0.3, 0.1]]).log()  # logits up to a constant
    for name in STREAMS:
        merge = MERGES[METHODS[name].merge or "mean"]
        scores, _ = merge(logprobs, None)
        assert torch.allclose(scores, logprobs[1])  # with one document, all are that document's
    entropies, kept = truncated_entropies(logprobs, 0.55)
    assert kept.tolist() == [[True, True, False], [True, False, False]]
    assert entropies[1].item() == pytest.approx(-0.6 * math.log(0.6))


def test_trace_is_the_mean_over_the_streams(engine: Engine) -> None:
    trace = engine.run(LAYOUT, methods="ensemble", max_new_tokens=2, stop_at_eos=False, trace=True).traces[
        "ensemble"
    ]
    attention = trace.suffix_attention
    assert attention is not None
    np.testing.assert_allclose(attention.sum(-1), 1, atol=1e-6)
    for document, ids in enumerate(LAYOUT.documents):
        one = TokenLayout(LAYOUT.prefix, (ids,), LAYOUT.suffix)
        alone = engine.run(one, methods="vanilla", max_new_tokens=0, trace=True).traces["vanilla"]
        assert alone.suffix_attention is not None
        share = alone.suffix_attention[:, :, :, 1] / 3
        np.testing.assert_allclose(attention[:, :, :3, 1 + document], share, atol=1e-6)
    assert trace.suffix_starts.tolist()[0][0][0] == [3, 3, 3]


def with_base(factor: float) -> Method:
    return replace(METHODS["vanilla"], name="own", rope_bases=(factor,), requires="placement")


@pytest.mark.parametrize("name", BUCKETS)
def test_answer_is_merged_from_runs_with_each_base(engine: Engine, name: str) -> None:
    answer = engine.run(LAYOUT, methods=name, **OPTIONS)
    longer = LAYOUT.extend(answer.answers[name].token_ids[:-1])
    factors = [1.0, 1.3, 1.6, 1.9, 2.2, 2.5, 2.8]
    rows = [engine.run(longer, methods=with_base(one), **OPTIONS | {"max_new_tokens": 0}) for one in factors]
    logits = np.stack([row.logits["own"].double().numpy() for row in rows])
    logprobs = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
    if METHODS[name].merge == "logits":
        weights = np.exp(logits.max(-1))
        merged = (weights[..., None] * logits).sum(0) / weights.sum(0)[:, None]
    else:
        merged = np.log((np.exp(logprobs.max(-1, keepdims=True)) * np.exp(logprobs)).sum(0))
    torch.testing.assert_close(answer.logits[name].double(), torch.from_numpy(merged), rtol=0, atol=1e-5)


def test_each_base_gives_the_bits_of_a_run_of_its_own(tiny_llama: TinyLlama) -> None:
    engine = Engine(tiny_llama())
    options = passes.PassOptions(engine.patched_models, reserved_tokens=3)

    def prefill(method: Method) -> SequenceState:
        return passes.prefill(LAYOUT, method, options)[0]

    with torch.inference_mode():
        merged = prefill(METHODS["attention_buckets"])
        alone = [prefill(with_base(factor)) for factor in METHODS["attention_buckets"].rope_bases]
        for token in (7, 8):
            passes.extend([merged], [[token]], is_step=True)
            for row in alone:
                passes.extend([row, None], [[token], [0]], is_step=True)
    for stream, row in zip(merged.sequences, alone, strict=True):
        for layer, own in zip(stream.cache.layers, row.cache.layers, strict=True):
            filled = slice(0, layer.length)
            assert layer.length == own.length == LAYOUT.num_tokens + 2
            assert torch.equal(layer.keys[:, filled], own.keys[:, filled])
            assert torch.equal(layer.values[:, filled], own.values[:, filled])


def test_one_base_is_the_model_with_that_base(engine: Engine, tiny_llama: TinyLlama) -> None:
    for factor in (1.0, 1.9):
        one = replace(METHODS["attention_buckets"], rope_bases=(factor,))
        logits = engine.run(LAYOUT, methods=one, **OPTIONS).logits["attention_buckets"]
        assert torch.equal(logits, engine.run(LAYOUT, methods=with_base(factor), **OPTIONS).logits["own"])
        model = tiny_llama(dtype=torch.float64)
        rotary: Any = model.model.rotary_emb
        base = model.config.rope_parameters["rope_theta"] * factor
        rotary.inv_freq.copy_(base ** -(torch.arange(0, 8, 2) / 8))
        expected = Engine(model).run(LAYOUT, methods="vanilla", **OPTIONS).logits["vanilla"]
        torch.testing.assert_close(logits, expected, rtol=0, atol=0 if factor == 1 else 1e-5)


def test_bases_of_scaled_rope_are_refused_by_name() -> None:
    engine = Engine(make("llama", **FAMILIES["llama3"].options))
    with pytest.raises(ModelError, match=r"attention_buckets.*llama3", check=has_field("methods")):
        engine.run(LAYOUT, methods=["vanilla", "attention_buckets"])


def test_trace_is_the_mean_over_the_bases(engine: Engine) -> None:
    method = METHODS["attention_buckets"]
    trace = engine.run(LAYOUT, methods=method, max_new_tokens=2, trace=True).traces["attention_buckets"]
    rows = [
        engine.run(LAYOUT, methods=with_base(factor), max_new_tokens=0, trace=True).traces["own"]
        for factor in method.rope_bases
    ]
    attention: Any = [row.suffix_attention for row in rows]
    assert trace.suffix_attention is not None
    np.testing.assert_allclose(trace.suffix_attention[:, :, :3], np.mean(attention, axis=0), atol=1e-6)
    assert trace.document_starts.tolist() == rows[0].document_starts.tolist()
    assert trace.suffix_starts[:, :, :3].tolist() == rows[0].suffix_starts.tolist()


def test_documents_are_reused_with_the_same_base_only(engine: Engine) -> None:
    cache, methods = PrefixCache(), ["vanilla", "attention_buckets"]
    engine.run(LAYOUT, methods=methods, max_new_tokens=0, prefix_cache=cache)
    other = TokenLayout(LAYOUT.prefix, LAYOUT.documents, (61, 62))
    cached = engine.run(other, methods=methods, prefix_cache=cache, **OPTIONS).logits
    alone = engine.run(other, methods=methods, **OPTIONS).logits
    for name in methods:
        torch.testing.assert_close(cached[name], alone[name], rtol=0, atol=1e-6)
