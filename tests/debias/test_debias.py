"""Arithmetic of permutation, PriDe and calibration by hand, and run_debias against its definition."""

import itertools
import math
from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pine_engine import Engine, GenerationFinished, InputError, PrefillDone, RunFinished, TokenGenerated
from pine_engine.debias import debias
from pine_engine.debias.debias import (
    CANDIDATES,
    DebiasResult,
    calibrated_prompt,
    combine_labels,
    log_mean,
    mean_prior,
    most_voted,
    named_label,
    pride_prior,
    run_debias,
    softmax,
)
from pine_engine.debias.plan import content_free_prompts, document_orders, plan_debias, prior_samples
from pine_engine.debias.table import DEBIASERS, Steps
from pine_engine.prompts.layout import TokenLayout
from pine_engine.prompts.prompt import Document, Prompt
from pine_engine.prompts.request import LabeledRequest
from tests.support.forward import count_tokens
from tests.support.tokenizers import letter_tokenizer

REQUEST = LabeledRequest(
    question="Why?",
    documents=[Document("Moon."), Document("Hot tea.", "T"), Document("Blue sky.")],
    labels=["A", "B", "C"],
    instruction="Say.",
    system="Be kind.",
    task="judge_pair",
)
"""The task writes the letter of each document's place into the prompt."""

ROUNDING = 1e-6
"""Probabilities from float32 logits of a decoding step, which has another shape than a prefill."""


def changed(**fields: Any) -> LabeledRequest:
    return LabeledRequest.model_validate({**dict(REQUEST), **fields})


def in_order(order: tuple[int, ...], **fields: Any) -> LabeledRequest:
    return changed(documents=[REQUEST.documents[index] for index in order], **fields)


def run(engine: Engine, *requests: LabeledRequest, **options: Any) -> list[DebiasResult]:
    plan = plan_debias(requests or [REQUEST], **options)
    return [event for event in run_debias(engine, plan) if isinstance(event, DebiasResult)]


@given(st.lists(st.floats(-60, 0), min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_log_mean_is_independent_of_order(logs: list[float], random: Any) -> None:
    mean = log_mean(logs)
    assert mean == pytest.approx(np.log(np.mean(np.exp(logs))), abs=1e-9)
    random.shuffle(logs)
    assert log_mean(logs) == mean
    assert log_mean([-np.inf, -np.inf]) == -np.inf and softmax([-900.0, 0.0]) == (0.0, 1.0)
    assert log_mean([-800.0, -801.0]) == pytest.approx(-800 + np.log((1 + np.exp(-1)) / 2))


@pytest.mark.parametrize(
    ("votes", "winners"),
    [(["b", "a", "b"], ["b"]), (["b", "a", None], ["a", "b"]), ([None] * 2, []), ([2, 0, 2, 0, 1], [0, 2])],
)
def test_most_voted_lists_ties_in_ascending_order(votes: list[Any], winners: list[Any]) -> None:
    for one in itertools.permutations(votes):
        assert most_voted(one) == winners


def test_combined_labels_by_hand() -> None:
    """Average: document 1 has the second label first (0.4), then the first one (0.5)."""
    mean = combine_labels(
        DEBIASERS["permutation_full"], np.log([(0.6, 0.4), (0.5, 0.5)]).tolist(), [(0, 1), (1, 0)]
    )
    assert mean == pytest.approx(((0.6 + 0.5) / 2, (0.4 + 0.5) / 2))
    # Prior: the means of the logarithms are those of 0.4 and 0.2, and 0.5 / 0.8 : 0.5 / 0.2 is 1 : 4.
    assert pride_prior(np.log([(0.8, 0.2), (0.5, 0.5)]).tolist()) == pytest.approx((2 / 3, 1 / 3), abs=1e-8)
    assert mean_prior([(0.75, 0.25), (0.25, 0.75), (0.5, 0.5), (0.1, 0.9)]) == pytest.approx((0.4, 0.6))
    divided = combine_labels(DEBIASERS["pride"], np.log([(0.5, 0.5)]).tolist(), [(0, 1)], (0.8, 0.2))
    assert divided == pytest.approx((0.2, 0.8), abs=1e-8)
    # Calibration: the labels have 0.6 and 0.4, and without content 0.75 and 0.25 in the mean.
    logprobs = np.log([[0.3, 0.2], [0.2, 0.02], [0.4, 0.18]])
    calibrated = combine_labels(DEBIASERS["calibration_labels"], logprobs.tolist(), [(0, 1)])
    assert calibrated == pytest.approx((0.6 / 0.75, 0.4 / 0.25))


def choose(steps: Steps, *probabilities: list[float]) -> tuple[int, float]:
    """Choose a token by its probabilities after the prompt and after content-free prompts."""
    logits = torch.tensor(probabilities).double().log() + 3.0
    state: Any = SimpleNamespace()
    prompt = calibrated_prompt(0, "vanilla", [(state, row[None]) for row in logits], steps, 0.0)
    assert len(prompt.rows) == (len(logits) if steps == "every" else 1)
    assert torch.equal(prompt.logits, logits)
    return prompt.choose(logits)


def test_chosen_token_by_hand() -> None:
    own, free = [0.5, 0.3, 0.2], [[0.8, 0.1, 0.1], [0.1, 0.1, 0.8]]
    # First: the least are 0.1 each. With one content-free prompt: 0.5 - 0.8, 0.3 - 0.1, 0.2 - 0.1.
    assert choose("first", own, *free)[0] == 0
    token, logprob = choose("first", own, free[0])
    assert token == 1 and logprob == pytest.approx(math.log(0.3))
    assert choose("first", own)[0] == 0  # later tokens are greedy
    # Every: 0.5/0.45, 0.3/0.1 and 0.2/0.45.
    assert choose("every", own, *free)[0] == 1
    # 100 tokens have 0.01 among the candidates, token 7 less without content; 50 have almost nothing.
    own = [0.0099] * CANDIDATES + [0.0002] * 50
    assert choose("first", own, [0.01] * 7 + [0.0099] + [0.01] * 92 + [1e-12] * 50)[0] == 7


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("Both are fine, but\n[[B]].", 1), ("[[B]] or [[A]]", 0), ("A", 0), (" B.\nBecause", 1),
        ("B) it is", 1), ("**A**", None), ("A better answer is B", None), ("", None), ("(B)", 1),
    ],
)  # fmt: skip
def test_named_label_is_in_brackets_or_first(text: str, place: int | None) -> None:
    assert named_label(text, ["A", "B"]) == place


@pytest.mark.parametrize("wrapper", DEBIASERS)
def test_run_debias_reports_each_prefill_and_each_result(engine: Engine, wrapper: str) -> None:
    plan = plan_debias([REQUEST] * 3, wrapper=wrapper, samples=4, max_new_tokens=1)
    kinds = Counter(type(event) for event in run_debias(engine, plan))
    assert (kinds[PrefillDone], kinds[DebiasResult], kinds[RunFinished]) == (plan.num_prompts, 3, 0)


def probabilities(engine: Engine, layout: TokenLayout, base: str) -> np.ndarray:
    """Return the probabilities of all next tokens, float64."""
    result = engine.run(layout, methods=[base], max_new_tokens=1, return_logits=True)
    assert result.logits is not None
    softmax: np.ndarray = result.logits[base][-1].double().softmax(-1).numpy()
    return softmax


def label_probabilities(engine: Engine, prompt: Prompt, base: str) -> np.ndarray:
    """Return the probabilities of A, B and C as the next token, with sum 1."""
    ids = letter_tokenizer().convert_tokens_to_ids(["A", "B", "C"])
    labels = probabilities(engine, engine.tokenize(prompt), base)[ids]
    normalized: np.ndarray = labels / labels.sum()
    return normalized


@pytest.mark.parametrize("base", ["vanilla", "pine"])
@pytest.mark.parametrize("kind", ["cyclic", "sampled"])
def test_permutation_averages_the_probabilities_of_the_labels(engine: Engine, base: str, kind: Any) -> None:
    options = {"samples": 4, "seed": 5}
    (result,) = run(engine, wrapper=f"permutation_{kind}", base=base, **options)
    expected, favorites = np.zeros(3), []
    orders = document_orders(3, kind, **options)
    for order in orders:
        observed = label_probabilities(engine, in_order(order).prompt(engine), base)
        expected[list(order)] += observed / len(orders)
        favorites.append("ABC"[order[int(observed.argmax())]])
    np.testing.assert_allclose(list(result.scores.values()), expected, rtol=0, atol=ROUNDING)
    assert result.answer == "ABC"[int(expected.argmax())]
    assert result.base_answers == Counter(favorites)


def test_pride_divides_by_the_prior_of_the_samples(engine: Engine) -> None:
    requests = [changed(question=question) for question in ("Why?", "Who?", "How?")]
    results = run(engine, *requests, wrapper="pride", seed=1)
    (learned,) = prior_samples(3, seed=1)
    assert results[learned] == run(engine, requests[learned], wrapper="permutation_cyclic")[0]
    moved = [in_order(order, question=requests[learned].question) for order in document_orders(3, "cyclic")]
    observed = [label_probabilities(engine, request.prompt(engine), "vanilla") for request in moved]
    prior = np.exp(np.mean(np.log(observed), axis=0))
    for index in {0, 1, 2} - {learned}:
        scores = label_probabilities(engine, requests[index].prompt(engine), "vanilla") / prior
        np.testing.assert_allclose(list(results[index].scores.values()), scores / scores.sum(), rtol=1e-4)
        assert sum(results[index].base_answers.values()) == 1


@pytest.mark.parametrize("base", ["vanilla", "pine"])
@pytest.mark.parametrize("steps", ["first", "every"])
def test_calibrated_answer_is_that_of_separate_steps(engine: Engine, base: str, steps: str) -> None:
    layouts = [
        engine.tokenize(prompt) for prompt in (REQUEST.prompt(engine), *content_free_prompts(engine, REQUEST))
    ]
    ids: list[int] = []
    for step in range(2):
        own, *free = (probabilities(engine, layout.extend(ids), base) for layout in layouts)
        if steps == "every":
            scores = np.log(own) - np.log(np.mean(free, axis=0))
        else:  # the vocabulary has fewer tokens than there are candidates
            least = np.min(free, axis=0)
            scores = own - least / least.sum() if step == 0 else own
        ids.append(int(scores.argmax()))
    plan = plan_debias([changed(labels=[])], wrapper=f"calibration_{steps}", base=base, max_new_tokens=2)
    events = list(run_debias(engine, plan))
    (answer,) = (event.answer for event in events if isinstance(event, GenerationFinished))
    texts = [event.text for event in events if isinstance(event, TokenGenerated)]
    assert (answer.token_ids, len(texts), events[-1]) == (tuple(ids), 2, DebiasResult(texts[-1], {}, {}))


@pytest.mark.parametrize(
    ("places", "answer", "scores", "base_answers"),
    [
        ([0, 0], "tie", (1, 1), {"A": 1, "B": 1}),
        ([0, 1], "A", (2, 0), {"A": 2}),
        ([None, 0], "B", (0, 1), {"": 1, "B": 1}),
        ([None, None], "", (0, 0), {"": 2}),
    ],
)
def test_majority_counts_the_documents_that_answers_name(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, places: list[int | None], answer: str,
    scores: tuple[float, float], base_answers: dict[str, int],
) -> None:  # fmt: skip
    """The orders are (A, B) and (B, A), so that the first place twice means both documents."""
    named, texts = iter(places), []

    def name(text: str, _: list[str]) -> int | None:
        texts.append(text)
        return next(named)

    monkeypatch.setattr(debias, "named_label", name)
    two = changed(documents=["Moon.", "Tea."], labels=["A", "B"])
    (result,) = run(engine, two, wrapper="permutation_full", majority=True, max_new_tokens=2)
    assert result == DebiasResult(answer, dict(zip("AB", map(float, scores), strict=True)), base_answers)
    swapped = changed(documents=["Tea.", "Moon."], labels=["A", "B"]).tokenize(engine)
    assert texts[1] == engine.run(swapped, methods="vanilla", max_new_tokens=2).answers["vanilla"].text


def test_long_prompt_is_refused_before_the_first_prefill(engine: Engine) -> None:
    requests = [REQUEST, changed(documents=["x" * 900, "y", "z"])]
    with pytest.raises(InputError):
        next(run_debias(engine, plan_debias(requests, wrapper="permutation_cyclic")))
    rest = engine.max_context_length - REQUEST.tokenize(engine).num_tokens
    options: dict[str, Any] = {"wrapper": "permutation_cyclic", "max_new_tokens": rest + 1}
    assert len(run(engine, **options)) == 1
    with pytest.raises(InputError):
        next(run_debias(engine, plan_debias([REQUEST], majority=True, **options)))
    with pytest.raises(InputError):
        run(engine, changed(labels=["A", "B", "Con"]), wrapper="permutation_full")


@pytest.mark.parametrize("wrapper", ["permutation_full", "calibration_every"])
def test_closing_stops_the_model(engine: Engine, wrapper: str) -> None:
    with count_tokens(engine.patched_models[0].network.model.layers[0]) as calls:
        stream = run_debias(engine, plan_debias([REQUEST] * 50, wrapper=wrapper))
        next(event for event in stream if isinstance(event, PrefillDone))
        stream.close()
    assert 0 < len(calls) < 50
