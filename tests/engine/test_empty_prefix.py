"""Prompts without a prefix, as in models without a BOS token."""

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
OPTIONS: dict[str, Any] = {"max_new_tokens": 3, "return_logits": True, "stop_at_eos": False}

SHAPES = (
    "llama", "gpt_neox", "phi", "persimmon", "few rotary dimensions", "gemma2", "yarn",
    "cohere", "glm", "norm of queries and keys, interleaved",
)  # fmt: skip
"""All kinds of RoPE and of score scaling."""

FAMILY_ROUNDING = 2e-5
"""Relative to the largest logit: norms and angles are float32 in float64 models too."""

ROUNDING = 1e-6
"""Traces and returned logits are float32."""


@pytest.fixture(scope="module")
def engine(tiny_llama: Callable[..., LlamaForCausalLM]) -> Engine:
    return Engine(exact_llama(tiny_llama))


@pytest.mark.parametrize("name", by_tier(SHAPES))
def test_logits_are_those_of_the_definition(name: str) -> None:
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
    ranges = (TokenRange(1, 2, 0, LAYOUT.num_tokens + 2), TokenRange(0, 3, 0, 3))
    result = engine.run(LAYOUT, methods=method, **OPTIONS, trace=TraceConfig(ranges))
    ids = result.answers[method].token_ids
    model: Any = engine.model
    with torch.inference_mode():
        logits, weights = reference_pass(model, LAYOUT.extend(ids[:-1]), method)
    logits = logits[LAYOUT.documents_end :].float()
    torch.testing.assert_close(result.logits[method], logits, rtol=0, atol=ROUNDING)
    assert list(ids) == logits[LAYOUT.suffix_length - 1 :].argmax(-1).tolist()
    trace = result.traces[method]
    for found, tokens in zip(trace.token_weights, ranges, strict=True):
        expected = weights[tokens.layer, tokens.head, tokens.first : tokens.stop]
        np.testing.assert_allclose(found.weights, expected, rtol=0, atol=ROUNDING)
    assert trace.suffix_attention is not None and not trace.suffix_attention[..., 0].any()
    np.testing.assert_allclose(trace.suffix_attention.sum(-1), 1.0, rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", by_tier(["llama", "phi", "cohere", "glm"]))
def test_order_changes_no_bit_of_invariant_methods(name: str, dtype: torch.dtype) -> None:
    family = FAMILIES[name]
    engine = Engine(make(family.kind, dtype, **family.options))
    orders = map(LAYOUT.reorder, itertools.permutations(range(3)))
    first, *others = [engine.run(order, methods="all", **OPTIONS).logits for order in orders]
    for method, row in METHODS.items():
        is_equal = all(torch.equal(logits[method], first[method]) for logits in others)
        assert is_equal == row.is_order_invariant, method


def test_prefix_cache_and_patched_generate_agree(engine: Engine) -> None:
    first = engine.run(LAYOUT, methods="all", **OPTIONS)
    cache = PrefixCache()
    engine.run(
        TokenLayout((), LAYOUT.documents, (61, 62)), methods="all", max_new_tokens=1, prefix_cache=cache
    )
    again = engine.run(LAYOUT, methods="all", **OPTIONS, prefix_cache=cache)
    model: Any = engine.model
    for method in METHODS:
        torch.testing.assert_close(again.logits[method], first.logits[method], rtol=0, atol=1e-5)
        with patch_generate(engine, LAYOUT, method=method) as inputs:
            output = model.generate(**inputs, max_new_tokens=3, do_sample=False)
        ids = tuple(output[0, LAYOUT.num_tokens :].tolist())
        assert ids == first.answers[method].token_ids[: len(ids)]
