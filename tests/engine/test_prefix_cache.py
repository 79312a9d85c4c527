"""Reused states give the logits of a separate prefill."""

from typing import Any

import pytest
import torch
from torch import Tensor

from pine_engine import METHODS, Engine, PrefixCache, TokenLayout
from pine_engine.attention.state import SequenceState
from pine_engine.engine import passes
from tests.support.families import TinyLlama
from tests.support.forward import count_tokens

LAYOUT = TokenLayout((5, 9, 60), ((11, 12, 13, 14), (21, 22), (31, 32, 33, 34, 35)), (51, 52, 53))
OTHER_QUESTION = TokenLayout(LAYOUT.prefix, LAYOUT.documents, (61, 62))
ROUNDING = 1e-5
"""Float64, but transformers rotates with float32 angles."""


@pytest.fixture(scope="module")
def engine(tiny_llama: TinyLlama) -> Engine:
    return Engine(tiny_llama(dtype=torch.float64))


@torch.inference_mode()
def prefill(
    engine: Engine, layout: TokenLayout, method: str, cached: list[SequenceState] | None = None
) -> tuple[SequenceState, Tensor, int]:
    """Return the state, the logits of the suffix, and the number of tokens that the model processed."""
    options: dict[str, Any] = {"reserved_tokens": 4, "logits_to_keep": layout.suffix_length}
    with count_tokens(engine.patched_models[0].network.model.embed_tokens) as fed:
        row, logits = passes.prefill(
            engine.patched_models, layout, METHODS[method], cached_sequences=cached or [], **options
        )
    return row, logits, sum(fed)


def num_fed(engine: Engine, layout: TokenLayout, method: str, cached: SequenceState) -> int:
    """Check the logits of a prefill that may reuse a state; return the number of processed tokens."""
    expected = prefill(engine, layout, method)[1]
    row, logits, tokens = prefill(engine, layout, method, [cached])
    torch.testing.assert_close(logits, expected, rtol=0, atol=ROUNDING)
    assert row.num_cached_tokens() == layout.num_tokens
    return tokens


@pytest.mark.parametrize("source", ["vanilla", "pine"])
@pytest.mark.parametrize("method", METHODS)
def test_prefix_of_any_method_is_reused(engine: Engine, method: str, source: str) -> None:
    cached = prefill(engine, LAYOUT, source)[0]
    layout = TokenLayout(LAYOUT.prefix, ((11, 12, 13, 14, 15, 16, 17), *LAYOUT.documents[1:]), LAYOUT.suffix)
    all_tokens = prefill(engine, layout, method)[2]
    num_reused = layout.prefix_length if METHODS[method].has_positions else 0
    assert num_fed(engine, layout, method, cached) == all_tokens - num_reused


@pytest.mark.parametrize("method", METHODS)
def test_documents_are_reused_for_other_question_and_order(engine: Engine, method: str) -> None:
    cached, before, _ = prefill(engine, LAYOUT, method)
    assert num_fed(engine, OTHER_QUESTION, method, cached) == OTHER_QUESTION.suffix_length
    moved = num_fed(engine, LAYOUT.reorder([2, 0, 1]), method, cached)
    assert (moved == LAYOUT.suffix_length) == METHODS[method].is_order_invariant
    again = prefill(engine, LAYOUT, method, [cached])[1]  # the cached state is unchanged
    torch.testing.assert_close(again, before, rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("method", METHODS)
def test_pcw_documents_serve_only_pcw_and_sp(engine: Engine, method: str) -> None:
    cached = prefill(engine, LAYOUT, "pcw")[0]
    is_reused = num_fed(engine, LAYOUT, method, cached) == LAYOUT.suffix_length
    assert is_reused == (METHODS[method].document_encoding == METHODS["pcw"].document_encoding)


def test_other_documents_or_prefix_are_not_reused(engine: Engine) -> None:
    cached = prefill(engine, LAYOUT, "pine")[0]
    others = TokenLayout(LAYOUT.prefix, (*LAYOUT.documents[:2], (71, 72)), LAYOUT.suffix)
    other_prefix = TokenLayout((6, 9, 60), LAYOUT.documents, LAYOUT.suffix)
    for layout, reused in ((others, others.prefix_length), (other_prefix, 0)):
        all_tokens = prefill(engine, layout, "pine")[2]
        assert num_fed(engine, layout, "pine", cached) >= all_tokens - reused > LAYOUT.suffix_length


def test_prefix_cache_serves_next_question(engine: Engine) -> None:
    cache, methods = PrefixCache(), ["vanilla", "pcw", "sp", "pine"]
    engine.run(LAYOUT, methods=methods, max_new_tokens=3, prefix_cache=cache)
    assert [row.state.plan.method.name for row in cache.rows] == methods
    expected = engine.run(OTHER_QUESTION, methods=methods, max_new_tokens=3, stop_at_eos=False)
    with count_tokens(engine.patched_models[0].network.model.embed_tokens) as fed:
        again = engine.run(
            OTHER_QUESTION, methods=methods, max_new_tokens=3, stop_at_eos=False, prefix_cache=cache
        )
    assert fed[: len(methods)] == [OTHER_QUESTION.suffix_length] * len(methods)
    for method in methods:
        assert again.answers[method].token_ids == expected.answers[method].token_ids


def test_trace_is_not_taken_from_cached_documents(engine: Engine) -> None:
    cache = PrefixCache()
    engine.run(LAYOUT, methods=["pine"], max_new_tokens=1, prefix_cache=cache)
    traced = engine.run(LAYOUT, methods=["pine"], max_new_tokens=1, prefix_cache=cache, trace=True)
    alone = engine.run(LAYOUT, methods=["pine"], max_new_tokens=1, trace=True)
    assert (traced.traces["pine"].document_starts == alone.traces["pine"].document_starts).all()
