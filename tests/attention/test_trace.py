"""What a trace says, against the definition: attention by document and by token, and the alternatives."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

from pine_engine.attention.trace import TokenRange, Trace, TraceConfig
from pine_engine.engine.engine import Engine
from pine_engine.errors import InputError
from pine_engine.methods.table import METHODS
from pine_engine.prompts.layout import TokenLayout
from tests.support.reference import exact_llama, reference_pass

LAYOUT = TokenLayout((5, 9, 60), ((11, 12, 13, 14), (21, 22), (31, 32, 33, 34, 35), (41,)), (51, 52, 53))
NEW_TOKENS = 3
ROUNDING = 1e-6
"""Traces are float32."""


@pytest.fixture(scope="module")
def engine(tiny_llama: Callable[..., LlamaForCausalLM]) -> Engine:
    return Engine(exact_llama(tiny_llama))


def traced(engine: Engine, method: str, request: TraceConfig | bool) -> tuple[Trace, TokenLayout, np.ndarray]:
    """The trace, the prompt with the tokens fed back, and the weights the definition gives (A, H, n, n)."""
    result = engine.run(LAYOUT, methods=[method], max_new_tokens=NEW_TOKENS, stop_at_eos=False, trace=request)
    longer = LAYOUT.extend(result.answers[method].token_ids[:-1])
    with torch.inference_mode():
        assert isinstance(engine.model, LlamaForCausalLM)
        _, weights = reference_pass(engine.model, longer, method)
    return result.traces[method], longer, weights.numpy()


@pytest.mark.parametrize("method", METHODS)
def test_weights_of_every_token_are_those_of_the_definition(engine: Engine, method: str) -> None:
    total = LAYOUT.num_tokens + NEW_TOKENS - 1
    ranges = (TokenRange(1, 2, 0, total), TokenRange(0, 3, 5, 9))
    trace, _, expected = traced(engine, method, TraceConfig(ranges))
    for kept, asked in zip(trace.token_weights, ranges, strict=True):
        assert kept.asked == asked
        rows = expected[asked.layer, asked.head, asked.first : asked.stop]
        np.testing.assert_allclose(kept.weights, rows, rtol=0, atol=ROUNDING)
    assert np.isnan(trace.token_weights[0].weights).any()


@pytest.mark.parametrize("method", METHODS)
def test_attention_by_document_sums_the_weights_of_the_definition(engine: Engine, method: str) -> None:
    trace, longer, expected = traced(engine, method, True)
    weights = np.nan_to_num(expected[:, :, LAYOUT.documents_end :])
    borders = [0, *LAYOUT.document_starts.tolist(), LAYOUT.documents_end, longer.num_tokens]
    shares = [weights[..., start:stop].sum(-1) for start, stop in pairwise(borders)]
    assert trace.suffix_attention is not None
    np.testing.assert_allclose(trace.suffix_attention, np.stack(shares, -1), rtol=0, atol=ROUNDING)
    assert trace.token_weights == ()


def test_alternatives_are_the_most_likely_tokens_and_begin_with_the_one_taken(engine: Engine) -> None:
    result = engine.run(
        LAYOUT,
        methods=["pine"],
        max_new_tokens=NEW_TOKENS,
        stop_at_eos=False,
        return_logits=True,
        trace=TraceConfig(alternatives=4),
    )
    logprobs = result.logits["pine"][LAYOUT.suffix_length - 1 :].log_softmax(-1).numpy()
    alternatives = result.traces["pine"].alternatives
    assert [step[0].token_id for step in alternatives] == list(result.answers["pine"].token_ids)
    for step, row in zip(alternatives, logprobs, strict=True):
        assert [each.token_id for each in step] == np.argsort(-row)[:4].tolist()
        assert [each.logprob for each in step] == pytest.approx(np.sort(row)[::-1][:4].tolist(), abs=1e-5)


def test_queries_that_never_came_are_blank(engine: Engine) -> None:
    last = LAYOUT.num_tokens + NEW_TOKENS - 1
    trace, _, _ = traced(engine, "pine", TraceConfig((TokenRange(0, 0, last - 1, last + 1),)))
    weights = trace.token_weights[0].weights
    assert np.isnan(weights[1]).all() and np.nansum(weights[0]) == pytest.approx(1)


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (TokenRange(2, 0, 0, 1), "asked for layer 2, head 0, but the model has 2 layers and 4 heads"),
        (TokenRange(0, 4, 0, 1), "asked for layer 0, head 4"),
        (TokenRange(0, 0, 3, 30), "queries 3 to 29, but prompt and answer have 21 tokens"),
        (TokenRange(0, 0, 3, 3), "queries 3 to 2"),
    ],
)
def test_what_lies_outside_is_refused(engine: Engine, asked: TokenRange, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        engine.generate(LAYOUT, max_new_tokens=NEW_TOKENS, trace=TraceConfig((asked,)))
    with pytest.raises(InputError, match="-1 alternatives were asked for; give 0 or more"):
        engine.generate(LAYOUT, trace=TraceConfig(alternatives=-1))
