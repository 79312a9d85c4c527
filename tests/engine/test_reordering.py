"""Reordered prompts: the run is vanilla over the arranged documents; the order follows from the scores."""

from typing import Any

import numpy as np
import pytest
import torch

from pine_engine import METHODS, Engine, InputError, TokenLayout, TokenRange, TraceConfig
from pine_engine.engine.reordering import ARRANGEMENTS, FirstPass, reorder_documents
from tests.support.errors import has_field
from tests.support.families import TinyLlama

LAYOUT = TokenLayout((5, 9, 60), ((31, 32, 33), (21, 22), (41, 42, 43, 44), (21, 22)), (51, 52, 53))
OPTIONS: dict[str, Any] = {"max_new_tokens": 3, "stop_at_eos": False, "return_logits": True, "trace": True}
REORDERED = [name for name, row in METHODS.items() if row.score]


@pytest.fixture(scope="module")
def engine(tiny_llama: TinyLlama) -> Engine:
    return Engine(tiny_llama(dtype=torch.float64))


def test_arrangements_place_the_best_documents() -> None:
    best_first = [3, 1, 0, 2, 4]
    assert list(ARRANGEMENTS["best_first"](best_first)) == best_first
    assert list(ARRANGEMENTS["best_last"](best_first)) == best_first[::-1]
    assert list(ARRANGEMENTS["ends"](best_first)) == [3, 0, 4, 2, 1]


def test_content_order_sorts_token_ids() -> None:
    reordered = reorder_documents(LAYOUT, METHODS["reorder_content"], FirstPass(lambda *_: torch.empty(0)))
    assert list(reordered.documents) == sorted(LAYOUT.documents)


@pytest.mark.parametrize("name", REORDERED)
def test_run_is_vanilla_over_the_reordered_documents(engine: Engine, name: str) -> None:
    result = engine.run(LAYOUT, methods=name, **OPTIONS)
    trace = result.traces[name]
    assert trace.layout == result.layout == LAYOUT
    order = np.argsort(trace.suffix_starts[0, 0, 0]).tolist()  # starts tell the order in which it ran
    moved = engine.run(LAYOUT.reorder(order), methods="vanilla", **OPTIONS)
    assert torch.equal(result.logits[name], moved.logits["vanilla"])
    expected = moved.traces["vanilla"]
    assert expected.suffix_attention is not None and trace.suffix_attention is not None
    np.testing.assert_array_equal(trace.suffix_starts[..., order], expected.suffix_starts)
    np.testing.assert_array_equal(trace.document_starts[:, :, order][..., order], expected.document_starts)
    shares = trace.suffix_attention[..., [0, *(1 + slot for slot in order), -1]]
    np.testing.assert_array_equal(shares, expected.suffix_attention)


def test_likelihood_puts_the_most_likely_question_last(engine: Engine) -> None:
    run = engine.run(LAYOUT, methods="reorder_likelihood", **OPTIONS)
    order = np.argsort(run.traces["reorder_likelihood"].suffix_starts[0, 0, 0])
    means = []
    for ids in LAYOUT.documents:  # the document's last token predicts the first of the question
        one = TokenLayout(LAYOUT.prefix, (ids[:-1],), ids[-1:] + LAYOUT.suffix)
        logprobs = engine.run(one, methods="vanilla", **OPTIONS).logits["vanilla"].double().log_softmax(-1)
        means.append(float(logprobs[range(3), list(LAYOUT.suffix)].mean()))
    assert [means[index] for index in order] == pytest.approx(sorted(means), abs=1e-9)


def test_token_ranges_are_refused_for_reordering_and_merging_methods(engine: Engine) -> None:
    config = TraceConfig((TokenRange(0, 0, 0, 3),))
    for name in ("attention_sorting", "nbce"):
        with pytest.raises(InputError, check=has_field("trace")):
            engine.run(LAYOUT, methods=["vanilla", name], max_new_tokens=1, trace=config)
