"""Traces against the definition: attention by document and by token, and next token candidates."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

from pine_engine import Engine, TokenLayout, TokenRange, TraceConfig
from tests.support.families import TinyLlama
from tests.support.reference import PLANNED, exact_llama, reference_pass

LAYOUT = TokenLayout((5, 9, 60), ((11, 12, 13, 14), (21, 22), (31, 32, 33, 34, 35), (41,)), (51, 52, 53))
NEW_TOKENS = 3
TOTAL = LAYOUT.num_tokens + NEW_TOKENS - 1
ROUNDING = 1e-6
"""Traces are float32."""


@pytest.fixture(scope="module")
def engine(tiny_llama: TinyLlama) -> Engine:
    return Engine(exact_llama(tiny_llama))


@pytest.mark.parametrize("method", PLANNED)
def test_attention_equals_the_definition(engine: Engine, method: str) -> None:
    # The last range has a query after the end of the answer.
    ranges = (TokenRange(1, 2, 0, TOTAL), TokenRange(0, 3, 5, 9), TokenRange(0, 0, TOTAL - 1, TOTAL + 1))
    options: dict[str, Any] = {"max_new_tokens": NEW_TOKENS, "stop_at_eos": False}
    run = engine.run(LAYOUT, methods=method, trace=TraceConfig(ranges), **options)
    trace = run.traces[method]
    longer = LAYOUT.extend(run.answers[method].token_ids[:-1])
    assert isinstance(engine.model, LlamaForCausalLM)
    with torch.inference_mode():
        expected = reference_pass(engine.model, longer, method)[1].numpy()  # (A, H, n, n)

    for tokens, one in zip(trace.token_weights, ranges, strict=True):
        rows = expected[one.layer, one.head, one.first : one.stop]
        assert tokens.queries == one
        np.testing.assert_allclose(tokens.weights[: len(rows)], rows, rtol=0, atol=ROUNDING)
        assert np.isnan(tokens.weights[len(rows) :]).all()
    assert np.isnan(trace.token_weights[0].weights).any() and len(trace.token_weights[2].weights) == 2

    weights = np.nan_to_num(expected[:, :, LAYOUT.documents_end :])
    borders = [0, *LAYOUT.document_starts.tolist(), LAYOUT.documents_end, longer.num_tokens]
    shares = [weights[..., start:stop].sum(-1) for start, stop in pairwise(borders)]
    assert trace.suffix_attention is not None
    np.testing.assert_allclose(trace.suffix_attention, np.stack(shares, -1), rtol=0, atol=ROUNDING)


def test_alternatives_are_the_most_likely_tokens(engine: Engine) -> None:
    result = engine.run(
        LAYOUT, methods="pine", max_new_tokens=NEW_TOKENS, stop_at_eos=False, return_logits=True,
        trace=TraceConfig(alternatives=4),
    )  # fmt: skip
    logprobs = result.logits["pine"][LAYOUT.suffix_length - 1 :].log_softmax(-1).numpy()
    alternatives = result.traces["pine"].alternatives
    assert [step[0].token_id for step in alternatives] == list(result.answers["pine"].token_ids)
    for step, row in zip(alternatives, logprobs, strict=True):
        assert [each.token_id for each in step] == np.argsort(-row)[:4].tolist()
        assert [each.logprob for each in step] == pytest.approx(np.sort(row)[::-1][:4].tolist(), abs=1e-5)
