"""States that one prompt lends another give the numbers that reading everything again gives."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from pine_engine.attention.state import SequenceState
from pine_engine.engine import passes
from pine_engine.engine.engine import Engine
from pine_engine.engine.prefix_cache import PrefixCache
from pine_engine.methods.table import METHODS
from pine_engine.prompts.layout import TokenLayout

LAYOUT = TokenLayout((5, 9, 60), ((11, 12, 13, 14), (21, 22), (31, 32, 33, 34, 35)), (51, 52, 53))
OTHER_QUESTION = TokenLayout(LAYOUT.prefix, LAYOUT.documents, (61, 62))
ROUNDING = 1e-9
"""Float64, but sums in products of other shapes, and transformers rotates with float32 angles."""

ROTATED_ELSEWHERE = 1e-5
"""A prefix that another method's row rotated: transformers' angles are float32, ours float64."""


@pytest.fixture(scope="module")
def engine(tiny_llama: Callable[..., LlamaForCausalLM]) -> Engine:
    return Engine(tiny_llama(dtype=torch.float64))


@torch.inference_mode()
def read(
    engine: Engine, layout: TokenLayout, method: str, cached_sequences: list[SequenceState] | None = None
) -> tuple[SequenceState, Tensor, int]:
    """The row, the logits of the suffix, and how many tokens went through the model."""
    fed = []
    count = engine.patched_models[0].network.model.embed_tokens.register_forward_hook(
        lambda _, ids, __: fed.append(ids[0].numel())
    )
    row, logits = passes.prefill(
        engine.patched_models,
        layout,
        METHODS[method],
        room=4,
        logits_to_keep=layout.suffix_length,
        cached_sequences=cached_sequences or [],
    )
    count.remove()
    return row, logits, sum(fed)


@pytest.mark.parametrize("donor", ["vanilla", "pcw_right", "pine", "mask_only"])
@pytest.mark.parametrize("method", METHODS)
def test_a_prefix_read_by_any_method_serves_all(engine: Engine, method: str, donor: str) -> None:
    layout = TokenLayout(LAYOUT.prefix, ((11, 12, 13, 14, 15, 16, 17), *LAYOUT.documents[1:]), LAYOUT.suffix)
    given, _, _ = read(engine, LAYOUT, donor)
    _, expected, all_tokens = read(engine, layout, method)
    _, logits, tokens = read(engine, layout, method, [given])
    assert tokens == all_tokens - layout.prefix_length
    torch.testing.assert_close(logits, expected, rtol=0, atol=ROTATED_ELSEWHERE)


@pytest.mark.parametrize("method", METHODS)
def test_another_question_starts_behind_the_documents(engine: Engine, method: str) -> None:
    given, before, _ = read(engine, LAYOUT, method)
    _, expected, _ = read(engine, OTHER_QUESTION, method)
    row, logits, tokens = read(engine, OTHER_QUESTION, method, [given])
    assert tokens == OTHER_QUESTION.suffix_length
    torch.testing.assert_close(logits, expected, rtol=0, atol=ROUNDING)
    again, repeated, _ = read(engine, LAYOUT, method, [given])
    torch.testing.assert_close(repeated, before, rtol=0, atol=ROUNDING)
    assert row.num_read() == OTHER_QUESTION.num_tokens and again.num_read() == LAYOUT.num_tokens


@pytest.mark.parametrize("method", METHODS)
def test_another_order_starts_behind_the_documents_where_order_does_not_matter(
    engine: Engine, method: str
) -> None:
    moved = LAYOUT.reorder([2, 0, 1])
    given, _, _ = read(engine, LAYOUT, method)
    _, expected, _ = read(engine, moved, method)
    _, logits, tokens = read(engine, moved, method, [given])
    assert (tokens == LAYOUT.suffix_length) == METHODS[method].is_order_invariant
    torch.testing.assert_close(logits, expected, rtol=0, atol=ROTATED_ELSEWHERE)


@pytest.mark.parametrize("method", ["pcw", "sp", "sp_prefix", "pcw_right", "sp_right"])
def test_pcw_and_sp_read_documents_once(engine: Engine, method: str) -> None:
    given, _, _ = read(engine, LAYOUT, "pcw")
    _, expected, _ = read(engine, LAYOUT, method)
    _, logits, tokens = read(engine, LAYOUT, method, [given])
    assert tokens == LAYOUT.suffix_length
    torch.testing.assert_close(logits, expected, rtol=0, atol=ROTATED_ELSEWHERE)


@pytest.mark.parametrize("method", ["nia", "vanilla", "pine"])
def test_control_documents_read_otherwise_are_not_used(engine: Engine, method: str) -> None:
    given, _, _ = read(engine, LAYOUT, "pcw")
    assert read(engine, LAYOUT, method, [given])[2] > LAYOUT.suffix_length


def test_other_documents_or_another_prefix_are_read_anew(engine: Engine) -> None:
    given, _, _ = read(engine, LAYOUT, "pine")
    others = TokenLayout(LAYOUT.prefix, (*LAYOUT.documents[:2], (71, 72)), LAYOUT.suffix)
    elsewhere = TokenLayout((6, 9, 60), LAYOUT.documents, LAYOUT.suffix)
    for layout, lent in ((others, others.prefix_length), (elsewhere, 0)):
        _, expected, all_tokens = read(engine, layout, "pine")
        _, logits, tokens = read(engine, layout, "pine", [given])
        assert tokens >= all_tokens - lent > LAYOUT.suffix_length
        torch.testing.assert_close(logits, expected, rtol=0, atol=ROUNDING)


def test_a_memory_answers_the_next_question_without_reading_the_documents_again(engine: Engine) -> None:
    prefix_cache = PrefixCache()
    methods = ["vanilla", "pcw", "sp", "pine"]
    engine.run(LAYOUT, methods=methods, max_new_tokens=3, stop_at_eos=False, prefix_cache=prefix_cache)
    assert [row.state.plan.method.name for row in prefix_cache.rows] == methods
    expected = engine.run(OTHER_QUESTION, methods=methods, max_new_tokens=3, stop_at_eos=False)
    fed: list[int] = []
    count = engine.patched_models[0].network.model.embed_tokens.register_forward_hook(
        lambda _, ids, __: fed.append(ids[0].shape[1])
    )
    again = engine.run(
        OTHER_QUESTION, methods=methods, max_new_tokens=3, stop_at_eos=False, prefix_cache=prefix_cache
    )
    count.remove()
    assert fed[: len(methods)] == [OTHER_QUESTION.suffix_length] * len(methods)
    for method in methods:
        assert again.answers[method].token_ids == expected.answers[method].token_ids


def test_a_trace_is_of_documents_that_were_read(engine: Engine) -> None:
    prefix_cache = PrefixCache()
    engine.run(LAYOUT, methods=["pine"], max_new_tokens=1, prefix_cache=prefix_cache)
    traced = engine.run(LAYOUT, methods=["pine"], max_new_tokens=1, prefix_cache=prefix_cache, trace=True)
    alone = engine.run(LAYOUT, methods=["pine"], max_new_tokens=1, trace=True)
    assert (traced.traces["pine"].document_starts == alone.traces["pine"].document_starts).all()
