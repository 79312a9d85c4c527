"""Superposition: positions, scores and attention by their formulas, and limits of paths."""

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pine_engine import METHODS, Engine, InputError, Method, PrefixCache, TokenLayout
from pine_engine.engine import passes, superposition
from pine_engine.engine.superposition import best_paths, path_bias, path_scores
from pine_engine.methods.plan import build_plan
from tests.support.errors import has_field
from tests.support.families import FAMILIES, TinyLlama, by_tier, make
from tests.support.reference import mixed_by

LAYOUT = TokenLayout(
    (5, 9, 60), ((31, 32, 33, 34, 35), (21, 22), (41, 42, 43), (21, 22)), (51, 52, 53, 54, 55), 2
)
NO_PREFIX = TokenLayout((), LAYOUT.documents, LAYOUT.suffix, 2)
NO_QUESTION = TokenLayout(LAYOUT.prefix, ((31,), *LAYOUT.documents[1:]), (54, 55), 2)
METHOD = METHODS["superposition"]
NAME = METHOD.name
OPTIONS: dict[str, Any] = {"max_new_tokens": 3, "stop_at_eos": False, "return_logits": True}
ROUNDING = 2e-5
"""Relative to the largest logit; angles are float32 in float64 models too."""


@pytest.fixture(params=[1, 2], ids=["one", "two"])
def method(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Method:
    """The method with one kept path, or two of similar weights."""
    monkeypatch.setattr(superposition, "NUM_KEPT", request.param)
    return METHOD if request.param == 1 else replace(METHOD, temperature=0.5)


def brute_force(model: Any, layout: TokenLayout, bias: list[float]) -> Tensor:
    """Return the logits (n, V) of prefix, every document with the question, and task. Source: ZOO 2.7."""
    question, task = layout.suffix[: -layout.task_length], layout.suffix[-layout.task_length :]
    prefix, ids, positions, path = layout.prefix_length, [*layout.prefix], [*range(layout.prefix_length)], []
    mean = layout.num_documents / sum(1 / len(document) for document in layout.documents)
    path += [-1] * prefix
    for number, document in enumerate(layout.documents):
        ids += [*document, *question]
        positions += [prefix + t * mean / len(document) for t in range(len(document))]
        positions += [prefix + mean + u for u in range(len(question))]
        path += [number] * (len(document) + len(question))
    ids += task
    positions += [prefix + mean + len(question) + u for u in range(len(task))]
    path += [layout.num_documents] * len(task)
    scores = torch.full((len(ids), len(ids)), -math.inf)
    for i, j in itertools.product(range(len(ids)), repeat=2):
        if j <= i and (path[j] in (-1, path[i]) or path[i] == layout.num_documents):
            is_weighted = path[i] == layout.num_documents and 0 <= path[j] < layout.num_documents
            scores[i, j] = bias[path[j]] if is_weighted else 0

    def mix(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, scaling: float, softcap: float | None
    ) -> Tensor:
        key, value = (one.repeat_interleave(len(query) // len(one), dim=0) for one in (key, value))
        raw = query @ key.mT * scaling
        raw = raw if softcap is None else (raw / softcap).tanh() * softcap
        seen, sinks = raw + scores, getattr(module, "sinks", None)
        if sinks is None:
            return seen.softmax(-1) @ value
        of_sinks = sinks.to(seen)[:, None, None].expand(-1, seen.shape[1], 1)
        return torch.cat((seen, of_sinks), dim=-1).softmax(-1)[..., :-1] @ value

    tokens = torch.tensor([ids])
    with mixed_by(model, mix), torch.inference_mode():
        logits: Tensor = model(tokens, position_ids=torch.tensor([positions]), use_cache=False).logits[0]
    return logits


def scores_of(logits: Tensor, layout: TokenLayout) -> list[float]:
    """Mean log-probabilities of document and question, without the first token of either."""
    question, first, scores = layout.suffix[: -layout.task_length], layout.prefix_length, []
    logprobs = logits.double().log_softmax(-1)
    for document in layout.documents:
        parts = [document, question]
        score = 0.0
        for part in parts:
            found = [float(logprobs[first + t, part[t + 1]]) for t in range(len(part) - 1)]
            score += sum(found) / len(found) if found else 0.0
            first += len(part)
        scores.append(score)
    return scores


def bias_of(scores: list[float], layout: TokenLayout, method: Any) -> list[float]:
    weights = torch.tensor(scores, dtype=torch.float64).div(method.temperature).log_softmax(0).tolist()
    best_first = sorted(range(len(scores)), key=lambda d: (-scores[d], layout.documents[d]))
    kept = best_first[: superposition.NUM_KEPT]
    return [weights[d] - max(weights) if d in kept else -math.inf for d in range(len(scores))]


@torch.inference_mode()
def all_logits(engine: Engine, layout: TokenLayout, method: Any = METHOD) -> Tensor:
    options = passes.PassOptions(engine.patched_models, logits_to_keep=0)
    return passes.prefill(layout, method, options)[1]


def check(model: Any, layout: TokenLayout, method: Any) -> None:
    first = brute_force(model, layout, [0.0] * layout.num_documents)
    bias = bias_of(scores_of(first, layout), layout, method)
    expected = brute_force(model, layout, bias)
    found = all_logits(Engine(model), layout, method)
    assert (found - expected).abs().max() <= ROUNDING * expected.abs().max()
    assert (first - expected)[-layout.task_length :].abs().max() > 100 * ROUNDING * expected.abs().max()


WHOLE_POSITIONS = ("gptj", "codegen")
"""Families whose rotations come from a table, without those between two positions."""


@pytest.mark.parametrize(
    "name", by_tier(name for name in FAMILIES if not name.startswith(("longrope", *WHOLE_POSITIONS)))
)
@pytest.mark.parametrize("method", [2], indirect=True)
def test_families_agree_with_brute_force(name: str, method: Method) -> None:
    family = FAMILIES[name]
    check(make(family.kind, torch.float64, **family.options), LAYOUT, method)


@pytest.mark.parametrize("layout", [LAYOUT, NO_PREFIX, NO_QUESTION], ids=["all", "no prefix", "no question"])
def test_prefill_agrees_with_brute_force(tiny_llama: TinyLlama, layout: TokenLayout, method: Method) -> None:
    check(tiny_llama(dtype=torch.float64), layout, method)


@pytest.fixture(scope="module")
def engine(tiny_llama: TinyLlama) -> Engine:
    return Engine(tiny_llama(dtype=torch.float64))


def test_logits_are_those_of_the_best_question_and_the_task(engine: Engine) -> None:
    found = engine.run(LAYOUT, methods=NAME, **OPTIONS)
    longer = LAYOUT.extend(found.answers[NAME].token_ids[:-1])
    expected = all_logits(engine, longer)
    plan = build_plan(METHOD, LAYOUT)
    first = all_logits(engine, LAYOUT, replace(METHOD, key_weighting="nothing"))
    best = best_paths(path_scores(first, plan), plan)[0]
    end = plan.layout.document_slice(best).stop
    rows = torch.cat((expected[end - 3 : end], expected[-4:])).float()
    torch.testing.assert_close(found.logits[NAME], rows, rtol=0, atol=1e-5)


def test_one_document_is_vanilla(engine: Engine) -> None:
    layout = TokenLayout(LAYOUT.prefix, LAYOUT.documents[:1], LAYOUT.suffix, 2)
    logits = engine.run(layout, methods=["vanilla", NAME], **OPTIONS).logits
    torch.testing.assert_close(logits[NAME], logits["vanilla"], rtol=0, atol=1e-5)


def test_token_ids_resolve_ties() -> None:
    plan = build_plan(METHOD, LAYOUT)
    assert best_paths([1.0, 1.0, 1.0, 1.0], plan) == [1, 3, 0, 2]
    assert path_bias([1.0, 1.0, 1.0, 1.0], plan) == (-math.inf, 0.0, -math.inf, -math.inf)


@pytest.mark.parametrize(
    ("method", "dtype"), [(1, torch.bfloat16), (2, torch.float32)], indirect=["method"], ids=["one", "two"]
)
def test_all_orders_are_bitwise_identical(tiny_llama: TinyLlama, dtype: torch.dtype, method: Method) -> None:
    engine = Engine(tiny_llama(dtype=dtype))
    documents = ((21, 22, 23), (21, 22), (21, 22), (31, 32, 33, 34))
    layout = TokenLayout(LAYOUT.prefix, documents, LAYOUT.suffix, 2)
    found = engine.shuffle(
        layout, methods=[method, "vanilla"], orders=itertools.permutations(range(4)), **OPTIONS
    )
    assert found.summary[NAME].bitwise_identical and not found.summary["vanilla"].bitwise_identical
    assert len(found.results) == 24


def test_cached_prompt_gives_the_same_logits(engine: Engine) -> None:
    expected, cache = engine.run(LAYOUT, methods=NAME, **OPTIONS).logits[NAME], PrefixCache()
    for _ in range(2):
        found = engine.run(LAYOUT, methods=[NAME, "pcw"], prefix_cache=cache, **OPTIONS)
        torch.testing.assert_close(found.logits[NAME], expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("layout", [LAYOUT, NO_QUESTION], ids=["question", "no-question"])
def test_trace_has_the_question_of_the_best_path(engine: Engine, layout: TokenLayout) -> None:
    run = engine.run(layout, methods=NAME, trace=True, **OPTIONS)
    trace = run.traces[NAME]
    attention = trace.suffix_attention
    assert trace.layout == layout and attention is not None
    assert attention.shape[2] == layout.suffix_length + 2
    np.testing.assert_allclose(attention.sum(-1), 1, atol=1e-6)
    is_read = attention[:, :, :, 1:-1].sum((0, 1)) > 0
    assert is_read[-1].sum() == 1  # one document is kept
    assert (is_read == is_read[-1]).all()
    assert (trace.suffix_starts == -1).all() and (trace.document_starts == -1).all()


def test_task_is_a_part_of_the_suffix() -> None:
    for length in (0, 6):
        with pytest.raises(InputError, check=has_field("task_length" if length else "task length")):
            TokenLayout(LAYOUT.prefix, LAYOUT.documents, LAYOUT.suffix, length)
