"""Prompts that begin with their first document: nothing stands in front of it, as in models without BOS."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

from pine_engine.attention.trace import TokenRange, TraceConfig
from pine_engine.engine import passes
from pine_engine.engine.engine import Engine
from pine_engine.engine.prefix_cache import PrefixCache
from pine_engine.engine.transformers_generate import patch_generate
from pine_engine.methods.table import METHODS
from pine_engine.prompts.layout import TokenLayout
from tests.support.families import FAMILIES, by_tier, defined_logits, make
from tests.support.reference import exact_llama, reference_pass

LAYOUT = TokenLayout((), ((11, 12, 13, 14), (21, 22), (31, 32, 33, 34, 35)), (51, 52, 53))
ORDERS = list(itertools.permutations(range(3)))
PROMISING = [name for name, method in METHODS.items() if method.is_order_invariant]
NEW_TOKENS = 3

SHAPES = (
    "llama", "gpt_neox", "phi", "persimmon", "few rotary dimensions", "gemma2", "yarn",
    "cohere", "glm", "norm of queries and keys, interleaved",
)  # fmt: skip
"""Pairs of halves and interleaved ones, all dimensions turning and only some, scores scaled and capped."""

FAMILY_ROUNDING = 2e-5
"""Relative to the largest logit: norms and angles are float32 in float64 models too."""

ROUNDING = 1e-6
"""Traces and kept logits are float32."""


@pytest.fixture(scope="module")
def engine(tiny_llama: Callable[..., LlamaForCausalLM]) -> Engine:
    return Engine(exact_llama(tiny_llama))


@pytest.mark.parametrize("name", by_tier(SHAPES))
def test_every_method_reads_it_as_defined_in_every_kind_of_family(name: str) -> None:
    family = FAMILIES[name]
    model = make(family.kind, torch.float64, **family.options)
    expected = {method: defined_logits(model, LAYOUT, method) for method in METHODS}
    engine = Engine(model)
    with torch.inference_mode():
        for method, row in METHODS.items():
            logits = passes.prefill(engine.patched_models, LAYOUT, row, room=0, logits_to_keep=0)[1]
            deviation = (logits - expected[method]).abs().max() / expected[method].abs().max()
            assert deviation <= FAMILY_ROUNDING, method


@pytest.mark.parametrize("method", METHODS)
def test_answers_and_traces_are_those_of_the_definition(engine: Engine, method: str) -> None:
    total = LAYOUT.num_tokens + NEW_TOKENS - 1
    ranges = (TokenRange(1, 2, 0, total), TokenRange(0, 3, 0, 3))
    options: dict[str, Any] = {"methods": [method], "max_new_tokens": NEW_TOKENS, "stop_at_eos": False}
    result = engine.run(LAYOUT, **options, return_logits=True, trace=TraceConfig(ranges))
    ids = result.answers[method].token_ids
    with torch.inference_mode():
        assert isinstance(engine.model, LlamaForCausalLM)
        logits, weights = reference_pass(engine.model, LAYOUT.extend(ids[:-1]), method)
    logits = logits[LAYOUT.documents_end :].float()
    torch.testing.assert_close(result.logits[method], logits, rtol=0, atol=ROUNDING)
    assert list(ids) == logits[LAYOUT.suffix_length - 1 :].argmax(-1).tolist()

    trace = result.traces[method]
    for kept, asked in zip(trace.token_weights, ranges, strict=True):
        expected = weights[asked.layer, asked.head, asked.first : asked.stop]
        np.testing.assert_allclose(kept.weights, expected, rtol=0, atol=ROUNDING)
    assert trace.suffix_attention is not None
    assert not trace.suffix_attention[..., 0].any()
    np.testing.assert_allclose(trace.suffix_attention.sum(-1), 1.0, rtol=0, atol=ROUNDING)
    assert engine.run(LAYOUT, **options, trace=True).answers[method].token_ids == ids


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", by_tier(["llama", "phi", "cohere", "glm"]))
def test_the_order_changes_no_bit_of_methods_that_promise_it(name: str, dtype: torch.dtype) -> None:
    family = FAMILIES[name]
    engine = Engine(make(family.kind, dtype, **family.options))
    options: dict[str, Any] = {"max_new_tokens": NEW_TOKENS, "return_logits": True, "stop_at_eos": False}
    runs = [engine.run(LAYOUT.reorder(order), methods=["all"], **options).logits for order in ORDERS]
    for method in PROMISING:
        assert all(torch.equal(run[method], runs[0][method]) for run in runs), method
    assert not all(torch.equal(run["vanilla"], runs[0]["vanilla"]) for run in runs)


def test_it_is_read_again_and_by_generate_as_at_first(engine: Engine) -> None:
    options: dict[str, Any] = {"max_new_tokens": NEW_TOKENS, "return_logits": True, "stop_at_eos": False}
    first = engine.run(LAYOUT, methods=["all"], **options)
    prefix_cache = PrefixCache()
    engine.run(
        TokenLayout((), LAYOUT.documents, (61, 62)),
        methods=["all"],
        max_new_tokens=1,
        prefix_cache=prefix_cache,
    )
    again = engine.run(LAYOUT, methods=["all"], **options, prefix_cache=prefix_cache)
    for method in METHODS:
        torch.testing.assert_close(again.logits[method], first.logits[method], rtol=0, atol=1e-5)
        with patch_generate(engine, [LAYOUT], method=method) as inputs:
            model: Any = engine.model
            written = model.generate(**inputs, max_new_tokens=NEW_TOKENS, do_sample=False)
        ids = tuple(written[0, LAYOUT.num_tokens :].tolist())
        assert ids == first.answers[method].token_ids[: len(ids)]
