"""Reordered prompts: the run is vanilla over the arranged documents; the order follows from the scores."""

from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from pine_engine import METHODS, Engine, InputError, TokenLayout, TokenRange, TraceConfig
from pine_engine.engine import passes, reordering
from pine_engine.engine.reordering import BASIN_RATIO, FirstPass, reorder_documents
from pine_engine.network.registration import run_pass
from tests.support.errors import has_field
from tests.support.families import TinyLlama

LAYOUT = TokenLayout(
    (5, 9, 60),
    ((31, 32, 33), (21, 22), (41, 42, 43, 44), (21, 22)),
    (51, 52, 53),
    scores=(0.5, 0.5, -1.0, 2.0),
)
OPTIONS: dict[str, Any] = {"max_new_tokens": 3, "stop_at_eos": False, "return_logits": True, "trace": True}
REORDERED = [name for name, row in METHODS.items() if row.score]


@pytest.fixture(scope="module")
def engine(tiny_llama: TinyLlama) -> Engine:
    return Engine(tiny_llama(dtype=torch.float64))


def no_pass(*_: object) -> torch.Tensor:
    raise AssertionError("scores that are given need no pass")


def scored(scores: Sequence[float | None], documents: Sequence[tuple[int, ...]] = ()) -> TokenLayout:
    """Return documents of one token, their number, with scores."""
    ids = tuple(documents) or tuple((10 + index,) for index in range(len(scores)))
    return TokenLayout((5,), ids, (51,), 1, tuple(scores))


def order_of(method: str, layout: TokenLayout) -> list[int]:
    reordered = reorder_documents(layout, METHODS[method], FirstPass(no_pass))
    return [layout.documents.index(document) for document in reordered.documents]


def test_arrangements_place_the_best_documents() -> None:
    scores = [-2.0, 0.5, -1.5, 3.0, -7.25]  # best first: 3, 1, 2, 0, 4
    assert order_of("by_score", scored(scores)) == [3, 1, 2, 0, 4]
    assert order_of("by_score_reversed", scored(scores)) == [4, 0, 2, 1, 3]
    assert order_of("ends_by_score", scored(scores)) == [3, 2, 4, 0, 1]


@pytest.mark.parametrize("count", range(1, 9))
def test_ends_are_those_of_the_usual_rankers(count: int) -> None:
    """Algorithms as their documentation describes them, over documents whose best is 0."""
    haystack = [0]  # LostInTheMiddleRanker inserts each document in the middle of the better ones
    for index in range(1, count):
        haystack.insert(len(haystack) // 2 + len(haystack) % 2, index)
    langchain: list[int] = []  # LongContextReorder puts documents, worst first, in front and behind in turn
    for index, document in enumerate(reversed(range(count))):
        langchain.insert(0 if index % 2 == 0 else index, document)
    found = order_of("ends_by_score", scored([-float(rank) for rank in range(count)]))
    assert found == haystack
    assert found == (langchain if count % 2 else langchain[::-1])


@given(st.lists(st.tuples(st.sampled_from([-1.0, 0.0, 2.5]), st.integers(3, 5)), min_size=1), st.randoms())
def test_equal_scores_are_ordered_by_content(documents: list[tuple[float, int]], random: Random) -> None:
    scores, ids = zip(*documents, strict=True)
    layout = scored(scores, [(token,) for token in ids])
    moved = layout.reorder(random.sample(range(len(ids)), len(ids)))
    for name in ("by_score", "by_score_reversed", "ends_by_score"):
        one, other = (
            reorder_documents(each, METHODS[name], FirstPass(no_pass)).documents for each in (layout, moved)
        )
        assert one == other


@pytest.mark.parametrize("scores", [(), (None, None), (0.5, None)])
def test_document_without_score_is_refused(scores: Sequence[float | None]) -> None:
    layout = TokenLayout((5,), ((10,), (11,)), (51,), 1, tuple(scores))
    with pytest.raises(InputError, check=has_field("methods")):
        reorder_documents(layout, METHODS["by_score"], FirstPass(no_pass))
    with pytest.raises(InputError, check=has_field("scores")):
        scored([0.5], [(10,), (11,)])


@pytest.mark.parametrize(("layers", "seed"), [(1, 0), (3, 1), (3, 2)])
def test_attention_basin_equals_eager_attention(tiny_llama: TinyLlama, layers: int, seed: int) -> None:
    model = tiny_llama(layers=layers, seed=seed, dtype=torch.float64, attn_implementation="eager")
    documents = sorted(LAYOUT.documents)
    by_layer = np.zeros((layers, 4))
    for start in range(4):
        layout = TokenLayout(LAYOUT.prefix, (*documents[start:], *documents[:start]), LAYOUT.suffix)
        with torch.inference_mode():
            maps = model(torch.tensor([layout.ids]), output_attentions=True).attentions
        for layer, weights in enumerate(maps):  # (1, H, n, n)
            of_suffix = weights[0, :, layout.documents_end :].mean((0, 1)).numpy()
            by_layer[layer] += [of_suffix[layout.document_slice(slot)].sum() for slot in range(4)]
    ratios = by_layer[:, [0, 3]].min(1) / by_layer[:, 1:3].mean(1)
    basins = [profile for profile, ratio in zip(by_layer, ratios, strict=True) if ratio >= BASIN_RATIO]
    profile = basins[0] if basins else by_layer.mean(0)
    best_first = [(21, 22), (21, 22), (31, 32, 33), (41, 42, 43, 44)]
    expected = dict(zip(np.argsort(-profile, kind="stable").tolist(), best_first, strict=True))
    reordered = Engine(model).run(LAYOUT, methods="attention_basin", **OPTIONS)
    trace = reordered.traces["attention_basin"]
    order = np.argsort(trace.suffix_starts[0, 0, 0]).tolist()
    assert [LAYOUT.documents[place] for place in order] == [expected[slot] for slot in range(4)]


def test_attention_basin_is_that_of_the_first_layer_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers without a basin, with one, and with another one; and none of them."""
    flat, ends, last = [[1.0, 1.0, 1.0, 1.0]], [[3.0, 1.0, 1.0, 2.0]], [[2.0, 1.0, 1.0, 9.0]]
    layout = scored([1.0, 2.0, 3.0, 4.0])
    for layers, expected in (
        ([flat, ends, last], [3, 1, 0, 2]),  # slots by attention: 0, 3, 1, 2
        ([flat, [[1.0, 9.0, 2.0, 1.0]]], [1, 3, 2, 0]),  # no basin, so the mean: 1, 2, 0, 3
    ):
        weights = torch.tensor([[[0.0, *heads, 0.0] for heads in layer] for layer in layers])
        monkeypatch.setattr(reordering, "_attention_by_head", lambda *_, weights=weights: weights.double())
        assert order_of("attention_basin", layout) == expected


def test_content_order_sorts_token_ids() -> None:
    reordered = reorder_documents(LAYOUT, METHODS["reorder_content"], FirstPass(no_pass))
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


@pytest.mark.parametrize("name", [*REORDERED, "calibrated_attention"])
def test_passes_compute_only_the_logits_that_are_read(
    engine: Engine, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = set()

    def counted(*args: Any, **options: Any) -> torch.Tensor:
        logits = run_pass(*args, **options)
        counts.add(logits.shape[1])
        return logits

    monkeypatch.setattr(passes, "run_pass", counted)
    engine.run(LAYOUT, methods=name, max_new_tokens=0)
    question = {LAYOUT.suffix_length + 1} if METHODS[name].score == "likelihood" else set()
    assert counts == {1} | question
