"""Calibrated attention: shares and weights by their formulas, and their limits."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pine_engine import METHODS, Engine, PrefixCache, TokenLayout, TokenRange, TraceConfig
from pine_engine.engine.reordering import dummy_document
from tests.support.families import TinyLlama
from tests.support.reference import exact_llama, mixed_by
from tests.support.tokenizers import letter_tokenizer

LAYOUT = TokenLayout((5, 9, 60), ((31, 32, 33, 34), (31, 22), (31, 42, 43)), (51, 52, 53))
METHOD = replace(METHODS["calibrated_attention"], temperature=0.05)
NAME = METHOD.name
OPTIONS: dict[str, Any] = {"max_new_tokens": 3, "stop_at_eos": False, "return_logits": True}


@pytest.fixture(scope="module")
def model(tiny_llama: TinyLlama) -> Any:
    return exact_llama(tiny_llama, layers=3)


@pytest.fixture(scope="module")
def engine(model: Any) -> Engine:
    return Engine(model, letter_tokenizer())


def causal_weights(query: Tensor, key: Tensor, scaling: float) -> Tensor:
    key = key.repeat_interleave(len(query) // len(key), dim=0)
    later = torch.full((query.shape[1], query.shape[1]), -torch.inf, dtype=query.dtype).triu(1)
    return (query @ key.mT * scaling + later).softmax(-1)


def vanilla_attention(model: Any, ids: tuple[int, ...]) -> Tensor:
    """Return the attention of the last token to all, (n,), the mean over layers and heads."""
    found = []

    def mix(_: nn.Module, query: Tensor, key: Tensor, value: Tensor, scaling: float, __: Any) -> Tensor:
        weights = causal_weights(query, key, scaling)
        found.append(weights[:, -1].mean(0))
        return weights @ value.repeat_interleave(len(query) // len(key), dim=0)

    with mixed_by(model, mix), torch.inference_mode():
        model(torch.tensor([ids]), use_cache=False)
    return torch.stack(found).mean(0)


def relevance(model: Any, layout: TokenLayout, content: tuple[int, ...]) -> Tensor:
    """Hsieh et al. 2024: attention to each document minus that to a dummy in its place."""
    found = []
    dummy = (31, *content)  # all documents begin with 31
    for slot, ids in enumerate(layout.documents):
        start = int(layout.document_starts[slot])
        documents = list(layout.documents)
        documents[slot] = dummy
        changed = TokenLayout(layout.prefix, tuple(documents), layout.suffix)
        of_document = vanilla_attention(model, layout.ids)[start : start + len(ids)].mean()
        found.append(of_document - vanilla_attention(model, changed.ids)[start : start + len(dummy)].mean())
    return torch.stack(found)


def calibrated_logits(model: Any, layout: TokenLayout, alpha: Tensor, ids: tuple[int, ...]) -> Tensor:
    """Return the logits (n, V) of prompt and `ids`, with calibrated weights in the last half of layers."""
    slices = [layout.document_slice(document) for document in range(layout.num_documents)]
    num_layers = model.config.num_hidden_layers

    def mix(module: Any, query: Tensor, key: Tensor, value: Tensor, scaling: float, _: Any) -> Tensor:
        weights = causal_weights(query, key, scaling)
        if module.layer_idx >= num_layers - num_layers // 2:
            changed = weights.clone()
            for row in range(layout.documents_end, weights.shape[1]):
                of_row = weights[:, row]
                together = sum(of_row[:, part].sum(-1) for part in slices)
                constant = together / sum(
                    a * (part.stop - part.start) for a, part in zip(alpha, slices, strict=True)
                )
                for a, part in zip(alpha, slices, strict=True):
                    factor = a / of_row[:, part].mean(-1) * constant
                    changed[:, row, part] = of_row[:, part] * factor[:, None]
            torch.testing.assert_close(changed.sum(-1), torch.ones_like(changed[..., 0]))
            weights = changed
        return weights @ value.repeat_interleave(len(query) // len(key), dim=0)

    with mixed_by(model, mix), torch.inference_mode():
        logits: Tensor = model(torch.tensor([layout.ids + ids]), use_cache=False).logits[0]
    return logits


def test_answer_agrees_with_brute_force(model: Any, engine: Engine) -> None:
    content = engine.patched_models[0].content_free
    result = engine.run(LAYOUT, methods=METHOD, trace=True, **OPTIONS)
    alpha = (relevance(model, LAYOUT, content) / METHOD.temperature).softmax(0)
    assert 0.02 < alpha.min() < alpha.max() < 0.98
    found, ids = result.logits[NAME].double(), result.answers[NAME].token_ids
    expected = calibrated_logits(model, LAYOUT, alpha, ids[:-1])[LAYOUT.documents_end :]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
    weights = alpha.numpy() * LAYOUT.lengths
    of_trace = result.traces[NAME].document_weights
    assert of_trace is not None
    np.testing.assert_allclose(of_trace, weights / weights.sum(), rtol=1e-6)


def test_documents_together_keep_their_weight(engine: Engine) -> None:
    cold, hot = (replace(METHOD, temperature=value) for value in (1e-6, 1e9))
    vanilla = METHODS["vanilla"]
    attention = {}
    for method in (cold, hot, vanilla):
        trace = engine.run(LAYOUT, methods=method, trace=True, **OPTIONS).traces[method.name]
        assert trace.suffix_attention is not None
        attention[method] = trace.suffix_attention[:, :, : LAYOUT.suffix_length]
        np.testing.assert_allclose(trace.suffix_attention.sum(-1), 1, atol=1e-6)
    np.testing.assert_allclose(attention[cold][:2], attention[vanilla][:2], atol=1e-6)  # first half
    together = [attention[method][2, :, :, 1:-1].sum(-1) for method in (cold, hot, vanilla)]
    for one in together[:2]:
        np.testing.assert_allclose(one, together[2], atol=1e-6)
    means = attention[hot][2, :, :, 1:-1] / LAYOUT.lengths
    np.testing.assert_allclose(means, np.broadcast_to(means[..., :1], means.shape), rtol=1e-4)
    assert np.sort(attention[cold][2, 0, -1, 1:-1])[:2].max() < 1e-6  # one document has all of it


def test_one_document_is_vanilla(engine: Engine) -> None:
    layout = TokenLayout(LAYOUT.prefix, LAYOUT.documents[:1], LAYOUT.suffix)
    logits = engine.run(layout, methods=["vanilla", METHOD], **OPTIONS).logits
    torch.testing.assert_close(logits[NAME], logits["vanilla"], rtol=0, atol=1e-5)


def test_documents_of_vanilla_are_reused(engine: Engine) -> None:
    cache = PrefixCache()
    expected = engine.run(LAYOUT, methods=METHOD, **OPTIONS).logits[NAME]
    engine.run(LAYOUT, methods="vanilla", prefix_cache=cache, **OPTIONS)
    found = engine.run(LAYOUT, methods=METHOD, prefix_cache=cache, **OPTIONS).logits[NAME]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_token_weights_are_those_of_the_documents(engine: Engine) -> None:
    config = TraceConfig((TokenRange(2, 1, 0, LAYOUT.num_tokens),))
    run = engine.run(LAYOUT, methods=[METHOD], trace=config, **OPTIONS)
    trace = run.traces[NAME]
    rows = np.nan_to_num(trace.token_weights[0].weights)
    np.testing.assert_allclose(rows.sum(-1), 1, atol=1e-6)
    assert trace.suffix_attention is not None
    part = LAYOUT.document_slice(1)
    np.testing.assert_allclose(
        rows[LAYOUT.documents_end :, part].sum(-1), trace.suffix_attention[2, 1, :3, 2], atol=1e-6
    )


def test_dummy_keeps_tokens_that_all_documents_share() -> None:
    assert dummy_document(((1, 2, 3, 9), (1, 2, 4, 9), (1, 2, 9)), (7,)) == (1, 2, 7, 9)
    assert dummy_document(((1, 2), (1, 2)), (7,)) == (1, 2, 7)
    assert dummy_document(((1, 2), (3, 4)), (7,)) == (7,)
