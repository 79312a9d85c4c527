"""Reused caches of documents: brute force with an explicit set of recomputed tokens, and the limits."""

import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from pine_engine import METHODS, Engine, InputError, Method, PrefixCache, TokenLayout, TokenRange, TraceConfig
from pine_engine.attention import recomputed
from pine_engine.attention.recomputed import deviating_tokens
from pine_engine.methods.plan import build_plan
from tests.support.errors import has_field
from tests.support.families import TinyLlama, make
from tests.support.reference import exact_llama, mixed_by

LAYOUT = TokenLayout((5, 9, 60), ((31, 32, 33, 34), (21, 22), (41, 42, 43, 44, 45)), (51, 52, 53))
NO_PREFIX = TokenLayout((), LAYOUT.documents, LAYOUT.suffix)
OPTIONS: dict[str, Any] = {"max_new_tokens": 4, "stop_at_eos": False, "return_logits": True}
KV_REUSE, LEGOLINK, CACHEBLEND = (METHODS[name] for name in ("kv_reuse", "legolink", "cacheblend"))
ROUNDING = 1e-6
"""Returned logits are float32."""


@pytest.fixture(scope="module")
def model(tiny_llama: TinyLlama) -> Any:
    return exact_llama(tiny_llama, layers=4)


@pytest.fixture(scope="module")
def engine(model: Any) -> Engine:
    return Engine(model)


@pytest.fixture(autouse=True)
def few_recomputed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recompute fewer tokens than the short documents have."""
    monkeypatch.setattr(recomputed, "NUM_RECOMPUTED", 2)
    monkeypatch.setattr(recomputed, "SHARE_RECOMPUTED", 0.34)  # 3 of 11 tokens


def brute_force(model: Any, layout: TokenLayout, method: Method) -> tuple[Tensor, list[int]]:
    """Return the logits of the suffix, and the tokens recomputed in the last layer. Source: ZOO 2.6.

    All tokens are in one pass: prefix, documents read alone, the same documents read again, suffix.
    """
    prefix, end, total = layout.prefix_length, layout.documents_end, layout.num_tokens
    documents = range(prefix, end)
    spans = [layout.document_slice(document) for document in range(layout.num_documents)]
    start_of = {j: span.start for span in spans for j in range(span.start, span.stop)}
    again = len(documents)  # distance from a document token to its copy
    again_computed = {
        "nothing": [],
        "first": [j for j in documents if j - start_of[j] < recomputed.NUM_RECOMPUTED],
        "deviating": list(documents),
    }[method.recomputed]
    ids = [*layout.ids[:end], *layout.ids[prefix:]]
    alone = min(1, prefix)

    def visible(row: int) -> tuple[int, dict[int, int]]:
        """Return the position of a row, and the positions of the rows that it sees."""
        if row < prefix:
            return row, {j: j for j in range(row + 1)}
        if row < end:
            own = {j: alone + j - start_of[row] for j in range(start_of[row], row + 1)}
            return own[row], {j: j for j in range(alone)} | own
        place = row - again  # in the prompt
        seen = {j: j for j in range(min(place + 1, prefix))}
        seen |= {j + again if j in again_computed else j: j for j in documents if j <= place}
        return place, seen | {j + again: j for j in range(end, place + 1)}

    def mix(module: Any, query: Tensor, key: Tensor, value: Tensor, scaling: float, softcap: Any) -> Tensor:
        nonlocal again_computed
        cos, sin = model.model.rotary_emb(query, torch.arange(total)[None])
        rotate = sys.modules[type(module).__module__].apply_rotary_pos_emb
        group, output = len(query) // len(key), torch.zeros_like(query)
        for row in range(len(ids)):
            position, seen = visible(row)
            at = torch.tensor([position, *seen.values()])
            for head in range(len(query)):
                vectors = torch.cat((query[head, [row]], key[head // group, list(seen)]))
                turned = rotate(vectors[None, None], vectors[None, None], cos[:, at], sin[:, at])[0][0, 0]
                scores = turned[1:] @ turned[0] * scaling
                scores = scores if softcap is None else (scores / softcap).tanh() * softcap
                output[head, row] = scores.softmax(-1) @ value[head // group, list(seen)]
        if method.recomputed == "deviating" and module.layer_idx == 1:
            changes = (value[:, end : end + again] - value[:, prefix:end]).square().sum((0, 2))
            count = int(recomputed.SHARE_RECOMPUTED * again)
            again_computed = sorted(prefix + int(place) for place in changes.argsort(descending=True)[:count])
        return output

    tokens = torch.tensor([ids])
    with mixed_by(model, mix), torch.inference_mode():
        logits: Tensor = model(tokens, position_ids=torch.zeros_like(tokens), use_cache=False).logits[0]
    return logits[end + again :], again_computed


@pytest.mark.parametrize("layout", [LAYOUT, NO_PREFIX], ids=["prefix", "no prefix"])
@pytest.mark.parametrize("method", [KV_REUSE, LEGOLINK, CACHEBLEND], ids=lambda one: one.name)
def test_logits_agree_with_brute_force(
    model: Any, engine: Engine, method: Method, layout: TokenLayout
) -> None:
    result = engine.run(layout, methods=method, **OPTIONS)
    longer = layout.extend(result.answers[method.name].token_ids[:-1])
    expected, again_computed = brute_force(model, longer, method)
    found = result.logits[method.name].double()
    torch.testing.assert_close(found, expected, rtol=0, atol=ROUNDING)
    assert len(again_computed) == {"nothing": 0, "first": 6, "deviating": 3}[method.recomputed]


def test_scores_with_a_softcap_agree_with_brute_force() -> None:
    gemma: Any = make("gemma2", torch.float64, head_dim=8, attn_logit_softcapping=2.0)
    found = Engine(gemma).run(LAYOUT, methods=LEGOLINK, **OPTIONS | {"max_new_tokens": 0})
    expected = brute_force(gemma, LAYOUT, LEGOLINK)[0]
    torch.testing.assert_close(found.logits[LEGOLINK.name].double(), expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("method", [LEGOLINK, CACHEBLEND], ids=lambda one: one.name)
def test_everything_recomputed_is_vanilla(
    engine: Engine, method: Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixteen tokens are more than each document has."""
    monkeypatch.setattr(recomputed, "NUM_RECOMPUTED", 16)
    monkeypatch.setattr(recomputed, "SHARE_RECOMPUTED", 1.0)
    logits = engine.run(LAYOUT, methods=["vanilla", method], **OPTIONS).logits
    torch.testing.assert_close(logits[method.name], logits["vanilla"], rtol=0, atol=ROUNDING)


def test_first_token_of_each_document_matters_less_than_all(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    logits = {}
    for count in (1, 4, 5):
        monkeypatch.setattr(recomputed, "NUM_RECOMPUTED", count)
        logits[count] = engine.run(LAYOUT, methods=LEGOLINK, **OPTIONS).logits["legolink"]
    changes = [float((logits[5] - logits[count])[2].abs().max()) for count in (1, 4)]
    assert changes[0] > 1e-3 < changes[1]


@pytest.mark.parametrize("method", [KV_REUSE, LEGOLINK, CACHEBLEND], ids=lambda one: one.name)
def test_cached_documents_give_the_same_logits(engine: Engine, method: Method) -> None:
    cache = PrefixCache()
    other = TokenLayout(LAYOUT.prefix, LAYOUT.documents, (61, 62))
    engine.run(other, methods=[method, "kv_reuse"] if method is not KV_REUSE else "pcw", prefix_cache=cache)
    found = engine.run(LAYOUT, methods=method, prefix_cache=cache, **OPTIONS).logits[method.name]
    expected = engine.run(LAYOUT, methods=method, **OPTIONS).logits[method.name]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("method", [LEGOLINK, CACHEBLEND], ids=lambda one: one.name)
def test_trace_sums_to_one_and_tokens_are_refused(engine: Engine, method: Method) -> None:
    trace = engine.run(LAYOUT, methods=method, trace=True, **OPTIONS).traces[method.name]
    assert trace.suffix_attention is not None and trace.suffix_attention.shape == (4, 4, 6, 5)
    assert abs(trace.suffix_attention.sum(-1) - 1).max() < 1e-6
    assert trace.suffix_starts[0, 0, 0].tolist() == LAYOUT.document_starts.tolist()
    with pytest.raises(InputError, check=has_field("trace")):
        engine.run(LAYOUT, methods=method, trace=TraceConfig((TokenRange(0, 0, 0, 3),)))


def test_token_ids_resolve_ties(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recomputed, "SHARE_RECOMPUTED", 0.3)
    plan = build_plan(CACHEBLEND, LAYOUT)
    cached, new = torch.zeros(1, 11, 2), torch.ones(1, 11, 2)
    assert deviating_tokens(new, cached, plan, 1).tolist() == [0, 4, 5]  # documents 21 .. and 31 ..
    new[0, 8] = 3
    assert deviating_tokens(new, cached, plan, 1).tolist() == [4, 5, 8]
